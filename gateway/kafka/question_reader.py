"""Read the questions of adopted answers (answers that another gateway began) from the request topics, because this
gateway may have to answer them from the FAQ.

A partition is read once for all waiting questions: when a gateway dies, thousands of answers are adopted at the same
time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.request.cursor import Place
from shared.errors import BrokerRefuses, BrokerUnavailable, ProtocolError
from shared.kafka import LogReader, Record
from shared.process.clock import monotonic_s
from shared.process.tasks import Tasks
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.wire.requests import open_request

_READ_MS: Final = 50
_READ_RECORDS: Final = 500
_ONE_WAY_S: Final = 10.0
_BARRED_S: Final = 60.0

log = get_logger()


@dataclass(slots=True)
class QuestionReader:
    """Reads questions. `open_reader` makes a reader of a topic's partition. A topic that may not be read is not tried
    again for `_BARRED_S`."""

    open_reader: Callable[[str, int], LogReader]
    _asked: dict[str, "asyncio.Future[str]"] = field(default_factory=dict)
    _waiting: dict[tuple[str, int], dict[int, str]] = field(default_factory=dict)
    _barred_until_s: dict[str, float] = field(default_factory=dict)
    _tasks: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _stopped: bool = False

    def read(self, response_id: str, topic: str, place: Place) -> "asyncio.Future[str]":
        """Read the question at that place.

        Returns:
            A future of the question; empty if it cannot be read, and cancelled by `stop`. Callers for the same question
                share one future: `shield` it, never cancel it.
        """
        future = self._asked.get(response_id)
        if future is not None:
            return future
        future = asyncio.get_running_loop().create_future()
        if self._stopped:
            future.cancel()
            return future
        if self._barred_until_s.get(topic, 0.0) > monotonic_s():
            future.set_result("")
            return future
        self._asked[response_id] = future
        partition = topic, place.partition
        if partition not in self._waiting:
            self._waiting[partition] = {}
            self._tasks.start(self._read(*partition), f"questions {topic} {place.partition}")
        before = self._waiting[partition].pop(place.offset, None)
        if before is not None:  # the topic was deleted and created again
            self._answer(before, "")
        self._waiting[partition][place.offset] = response_id
        return future

    async def stop(self) -> None:
        """Stop reading, and cancel the waiting futures."""
        self._stopped = True
        for future in self._asked.values():
            future.cancel()
        await self._tasks.cancel()

    async def _read(self, topic: str, number: int) -> None:
        """Read a partition until no request waits for it."""
        reader = self.open_reader(topic, number)
        wanted: dict[int, str] = {}
        try:
            await reader.start()
            while self._waiting[topic, number]:
                wanted, self._waiting[topic, number] = self._waiting[topic, number], {}
                try:
                    async with asyncio.timeout(_ONE_WAY_S):
                        await self._read_through(reader, wanted, (topic, number))
                except TimeoutError:
                    log.warning("questions_unread", topic=topic, partition=number, cause=f"not in {_ONE_WAY_S:g} s")
                self._answer_none(wanted)
        except BrokerRefuses as error:
            self._barred_until_s[topic] = monotonic_s() + _BARRED_S
            log.warning("questions_unread", topic=topic, partition=number, cause=str(error))
        except BrokerUnavailable as error:
            log.warning("questions_unread", topic=topic, partition=number, cause=str(error))
        finally:
            self._answer_none(wanted)
            self._answer_none(self._waiting.pop((topic, number)))
            await reader.stop()

    async def _read_through(self, reader: LogReader, wanted: dict[int, str], partition: tuple[str, int]) -> None:
        """Read from the first wanted record to the last one, or to the current end of the log. Requests that arrive in
        the meantime for records further ahead are served on the way."""
        end = await reader.end()
        reader.seek(min(wanted))
        while wanted and (at := await reader.next_offset()) < end and at <= max(wanted):
            waiting = self._waiting[partition]
            wanted.update({offset: waiting.pop(offset) for offset in list(waiting) if at <= offset < end})
            for record in await reader.read(timeout_ms=_READ_MS, max_records=_READ_RECORDS):
                response_id = wanted.pop(record.offset, None)
                if response_id is not None:
                    self._answer(response_id, _question_of(record, response_id))

    def _answer_none(self, wanted: dict[int, str]) -> None:
        for response_id in wanted.values():
            self._answer(response_id, "")

    def _answer(self, response_id: str, question: str) -> None:
        future = self._asked.pop(response_id, None)
        if future is not None and not future.done():
            future.set_result(question)


def _question_of(record: Record, response_id: str) -> str:
    """Return the question in a record; empty if the record is another request or no request."""
    try:
        request = open_request(record.value, record.headers, unreadable=record.unreadable)
    except ProtocolError as error:
        log.warning("question_unread", request_id=response_id, cause=str(error))
        return ""
    return request.input if request.id == response_id else ""
