"""`replyline record`: follow new records of the request topics, outside any group, and write the requests to a file."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from rich.console import Console

from ops.operate.recording.file import BYTES, VERSION, Header, RecordingWriter
from ops.operate.recording.options import RecordOptions
from ops.operate.recording.recorder import Recorder
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import PartitionReader, Record, describe_topics, why_unreachable
from shared.model.tokenizer import Tokenizer
from shared.nouns import counted
from shared.process.clock import now_unix_ms
from shared.records.log_readers import forgotten_of
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BUCKETS

_CLIENT: Final = "replyline-record"
_READ_MS: Final = 200
_MOST_AT_ONCE: Final = 500
_POLL_S: Final = 0.1
_KEY_BYTES: Final = 32


async def record(options: RecordOptions, settings: Settings, stop: asyncio.Event, console: Console) -> None:
    """Record until a limit is reached or `stop` is set. Raises `BrokerUnavailable`, `ModelError`, `RecordingFailed`,
    `SettingsError`."""
    tokenizer, name = _tokenizer(settings)
    requests = {settings.kafka.topics.requests(bucket): bucket for bucket in BUCKETS}
    forgotten = settings.kafka.topics.forgotten
    await _check_topics(settings.kafka, [*requests, forgotten])
    header = Header(version=VERSION, started_unix_ms=int(now_unix_ms()), tokenizer=name, topics=tuple(requests))
    recorder = Recorder(defaults=settings.request_defaults, count=tokenizer.count, key=secrets.token_bytes(_KEY_BYTES))
    readers = [PartitionReader(settings.kafka, client_id=_CLIENT, topic=topic) for topic in (*requests, forgotten)]
    writer = RecordingWriter(options.path, header)
    try:
        await asyncio.gather(*(reader.start() for reader in readers))
        console.print(f"recording {', '.join(requests)}; Ctrl-C ends the recording and keeps the file", soft_wrap=True)

        def take(record: Record) -> None:
            if record.topic == forgotten:
                with suppress(ProtocolError):
                    told = forgotten_of(record)
                    if recorder.forget(told):
                        writer.forget({told.person: told.unix_ms})
            elif recorder.requests < options.requests:
                entry = recorder.asked(record, requests[record.topic], now_unix_ms())
                if entry is not None:
                    writer.write(entry)

        start_s = time.monotonic()
        await _follow(readers, take, _ended(options, recorder, writer, stop))
        took_s = time.monotonic() - start_s
    except BaseException:
        writer.close() if recorder.requests else writer.discard()
        raise
    finally:
        await asyncio.gather(*(reader.stop() for reader in readers))
    _end(options, recorder, writer, took_s, console)


async def _ended(options: RecordOptions, recorder: Recorder, writer: RecordingWriter, stop: asyncio.Event) -> None:
    """Wait until a limit is reached or `stop` is set, and flush the file periodically."""
    until_s = time.monotonic() + options.minutes * 60
    while not (stop.is_set() or recorder.requests >= options.requests or time.monotonic() >= until_s):
        await asyncio.sleep(_POLL_S)
        writer.flush()


async def _follow(
    readers: list[PartitionReader], take: Callable[[Record], None], ended: Coroutine[Any, Any, None]
) -> None:
    """Read with all readers until `ended` returns. A fault in one reader ends all of them and is raised."""

    async def read(reader: PartitionReader) -> None:
        while True:
            for one in await reader.read(timeout_ms=_READ_MS, max_records=_MOST_AT_ONCE):
                take(one)

    tasks = [asyncio.create_task(each) for each in (ended, *map(read, readers))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _end(options: RecordOptions, recorder: Recorder, writer: RecordingWriter, took_s: float, console: Console) -> None:
    if not recorder.requests:
        writer.discard()
        console.print(f"no request in {took_s:.0f} s: no file was written", soft_wrap=True)
        return
    writer.finish()
    unreadable = f"; {counted(recorder.unreadable, 'unreadable record')} left out" if recorder.unreadable else ""
    requests = counted(recorder.requests, "request")
    console.print(
        f"{options.path}: {requests} in {took_s:.0f} s, {recorder.with_text} with their text (consented){unreadable}",
        soft_wrap=True,
    )


def _tokenizer(settings: Settings) -> tuple[Tokenizer, str]:
    """Return the tokenizer with which gateway and worker count. Raises `ModelError`."""
    if settings.worker.engine == "fake":
        return Tokenizer.byte_level(), BYTES
    return Tokenizer.load(settings.model.dir), settings.model.dir.name


async def _check_topics(kafka: KafkaSettings, wanted: list[str]) -> None:
    """Raise `BrokerUnavailable`, with a one-line message, unless all topics exist."""
    refused = await why_unreachable(kafka)
    if refused is not None:
        raise BrokerUnavailable(refused)
    found = await describe_topics(kafka)
    missing = [topic for topic in wanted if topic not in found]
    if missing:
        raise BrokerUnavailable(f"{', '.join(missing)}: missing, or not readable; run: replyline topics create")
