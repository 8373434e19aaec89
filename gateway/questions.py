"""The questions of adopted requests, from the topics in which they stand: the FAQ may have to answer them.

One way through a partition for all who wait for it, since thousands come together when a gateway has died.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.cursor import Place
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import LogReader, Record
from shared.logs import get_logger
from shared.messages import Bucket
from shared.requests import open_request

_READ_MS: Final = 50
_READ_RECORDS: Final = 500
_ONE_WAY_S: Final = 10.0

log = get_logger()


@dataclass(slots=True)
class Questions:
    """`open_reader` makes a reader of a bucket's partition."""

    open_reader: Callable[[Bucket, int], LogReader]
    _asked: dict[str, "asyncio.Future[str]"] = field(default_factory=dict)
    _waiting: dict[tuple[Bucket, int], dict[int, str]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def ask(self, response_id: str, bucket: Bucket, place: Place) -> "asyncio.Future[str]":
        """What was asked there; nothing where it cannot be had. While it is being read whoever asks again gets the same
        future: cancel none, but `shield` it."""
        future = self._asked.get(response_id)
        if future is not None:
            return future
        future = self._asked[response_id] = asyncio.get_running_loop().create_future()
        partition = bucket, place.partition
        if partition not in self._waiting:
            self._waiting[partition] = {}
            task = asyncio.create_task(self._read(*partition), name=f"questions {bucket} {place.partition}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        self._waiting[partition][place.offset] = response_id
        return future

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, bucket: Bucket, number: int) -> None:
        """Until nobody waits for this partition."""
        reader = self.open_reader(bucket, number)
        wanted: dict[int, str] = {}
        try:
            await reader.start()
            while self._waiting[bucket, number]:
                wanted, self._waiting[bucket, number] = self._waiting[bucket, number], {}
                async with asyncio.timeout(_ONE_WAY_S):
                    await self._go_through(reader, wanted)
                self._missed(wanted)
        except (BrokerUnavailable, TimeoutError) as error:
            log.warning("questions_unread", bucket=bucket, partition=number, cause=repr(error))
        finally:
            self._missed(wanted)
            self._missed(self._waiting.pop((bucket, number)))
            await reader.stop()

    async def _go_through(self, reader: LogReader, wanted: dict[int, str]) -> None:
        """From the first that is wanted to the last, or to where the log ends by now."""
        end = min(await reader.end(), max(wanted) + 1)
        reader.seek(min(wanted))
        while await reader.next_offset() < end:
            for record in await reader.read(timeout_ms=_READ_MS, max_records=_READ_RECORDS):
                response_id = wanted.pop(record.offset, None)
                if response_id is not None:
                    self._answer(response_id, _question_of(record, response_id))

    def _missed(self, wanted: dict[int, str]) -> None:
        for response_id in wanted.values():
            self._answer(response_id, "")

    def _answer(self, response_id: str, question: str) -> None:
        future = self._asked.pop(response_id, None)
        if future is not None and not future.done():
            future.set_result(question)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A fault of our own: the FAQ has nothing to look up."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("questions_failed", task=task.get_name(), exc_info=error)


def _question_of(record: Record, response_id: str) -> str:
    """Nothing where another request stands there, or none."""
    try:
        request = open_request(record.value, record.headers, unreadable=record.unreadable)
    except ProtocolError as error:
        log.warning("question_unread", request_id=response_id, cause=repr(error))
        return ""
    return request.input if request.id == response_id else ""
