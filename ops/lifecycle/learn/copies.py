"""Remove forgotten conversations from every copy of their words: the FAQ's corrections, exports and recordings."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from ops.lifecycle.learn.entries import remove_lessons
from ops.lifecycle.learn.examples import Example
from ops.lifecycle.learn.lessons import (
    LEARNED,
    Lesson,
    example_of,
    locked,
    people_of,
    read_lessons,
    split,
    write_whole,
)
from ops.operate.recording.file import forget_in
from shared.errors import BrokerUnavailable, ProtocolError, ReplylineError, SettingsError
from shared.kafka import Producer, scan
from shared.nouns import counted
from shared.records.log_readers import erased_of, forgotten_of
from shared.settings.kafka import KafkaSettings

EXPORTS: Final = "exports.txt"
_HALVES: Final = ("train.jsonl", "judge.jsonl")
_LOOK_INTERVAL_S: Final = 2.0
_Places = dict[str, dict[int, int]]


async def read_forgotten(kafka: KafkaSettings, places: _Places | None = None) -> dict[str, int]:
    """Return the forgotten conversations: digest → Unix ms until which nothing may be kept. `chat.erasures` has those
    of gateways without `chat.forgotten`. With `places` (topic → partition → next offset) only what was not returned
    before; they move once all is read, so that a failure loses nothing. Raises `BrokerUnavailable`."""
    forgotten: dict[str, int] = {}
    read: _Places = {}
    for topic, decode in ((kafka.topics.erasures, erased_of), (kafka.topics.forgotten, forgotten_of)):
        read[topic] = dict((places or {}).get(topic, {}))
        async for kept in scan(kafka, topic, offsets=dict(read[topic])):
            read[topic][kept.record.partition] = kept.record.offset + 1
            with suppress(ProtocolError):
                told = decode(kept.record)
                forgotten[told.person] = max(told.unix_ms, forgotten.get(told.person, 0))
    if places is not None:
        places |= read
    return forgotten


async def broken_promises(kafka: KafkaSettings) -> list[str]:
    """Return a line for each log of forgotten conversations that the broker may shorten, as one that it created
    itself."""
    producer = Producer(kafka, client_id="replyline-learn")
    await producer.start()
    try:
        return await producer.broken_promises((kafka.topics.erasures, kafka.topics.forgotten))
    finally:
        await producer.stop()


def export(faq: Path, out: Path) -> None:
    """Write the corrections into a folder, and first the folder into the FAQ's list of exports. Raises `SettingsError`
    without corrections to train on."""
    with locked(faq):
        halves = split(read_lessons(faq))
        if not halves[0]:
            raise SettingsError("no correction to train on; confirm some: replyline learn list")
        write_whole(faq / EXPORTS, "".join(f"{path}\n" for path in {*_exports(faq), out.resolve()}).encode())
        out.mkdir(parents=True, exist_ok=True)
        for name, lessons in zip(_HALVES, halves, strict=True):
            write_whole(out / name, b"".join(msgspec.json.encode(example_of(each)) + b"\n" for each in lessons))
        write_whole(out / "people.txt", "".join(f"{person}\n" for person in people_of(halves[0])).encode())


def remove_forgotten(faq: Path | None, recordings: Sequence[Path], forgotten: Mapping[str, int]) -> list[str]:
    """Remove what must go from the FAQ's folder, its exports and the recordings. Return a line for each that has
    changed, and for each export that is not here. A copy that cannot be changed keeps no other one: raises
    `SettingsError` with each fault once all others are done."""
    lines, faults = list[str](), list[str]()
    if faq is not None:
        with _noted(faults):
            gone, kept = remove_lessons(faq, lambda each: each.must_go(forgotten))
            lines.append(_told(faq, len(gone), "correction"))
            for out in _exports(faq):
                with _noted(faults):
                    lines += _trim(out, kept)
    for path in recordings:
        with _noted(faults):
            lines.append(_told(path, forget_in(path, forgotten), "question"))
    if faults:
        raise SettingsError("; ".join([*filter(None, lines), *faults]))
    return [line for line in lines if line]


@contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    """Add why a copy cannot be changed to `faults`."""
    try:
        yield
    except (ReplylineError, OSError) as error:
        faults.append(str(error))


async def follow(
    kafka: KafkaSettings, faq: Path | None, recordings: Sequence[Path], tell: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Do so when it starts and within seconds of each erasure, until `stop`. A copy that cannot be changed is tried
    again."""
    forgotten: dict[str, int] = {}
    told, places, broken, is_due = {""}, _Places(), list[str](), True
    while not stop.is_set():
        try:
            new = await read_forgotten(kafka, places)
        except BrokerUnavailable as error:
            lines = [f"{error}; trying again"]
        else:
            forgotten |= {person: max(until, forgotten.get(person, 0)) for person, until in new.items()}
            broken = broken if broken or "" not in told else await broken_promises(kafka)
            try:
                lines = broken + remove_forgotten(faq, recordings if new or is_due else (), forgotten)
                is_due = False
            except SettingsError as error:
                lines, is_due = [*broken, f"{error}; trying again"], True
        for line in lines:
            if line not in told:
                tell(line)
        told = set(lines)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_INTERVAL_S)


def _exports(faq: Path) -> list[Path]:
    file = faq / EXPORTS
    return [Path(line) for line in file.read_text().splitlines()] if file.exists() else []


def _trim(out: Path, kept: Sequence[Lesson]) -> list[str]:
    """Remove from an export what is no longer among the corrections, and no line that a person has added; return a line
    where that was so, or cannot be. `people.txt` stays: a version may already have been trained on all of them."""
    entries, num_gone, told = {lesson.entry for lesson in kept}, 0, list[str]()
    for file in (out / name for name in _HALVES):
        if not file.exists():
            return [f"{out}: this export is not here and may hold what was erased; delete it, or export again"]
        lines = file.read_bytes().splitlines(keepends=True)
        left = []
        for number, line in enumerate(lines, 1):
            found = _corrections_in(line)
            if found is None:
                told.append(f"{file}, line {number} cannot be read and may hold what was erased; mend or remove it")
            if not found or found <= entries:
                left.append(line)
        if len(left) < len(lines):
            num_gone += len(lines) - len(left)
            write_whole(file, b"".join(left))
    return [*told, _told(out, num_gone, "correction")]


def _corrections_in(line: bytes) -> set[str] | None:
    """Return the corrections' entries that an export's line rests on; None if it is no example."""
    if not line.strip():
        return set()
    try:
        example = msgspec.json.decode(line, type=Example)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return {each.id for each in example.grounding if each.id.startswith(LEARNED)}


def _told(path: Path, number: int, noun: str) -> str:
    return f"{path}: {counted(number, noun)} removed" if number else ""
