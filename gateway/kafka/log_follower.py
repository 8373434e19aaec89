"""Read, from the reply topic, the rest of answers that other gateways began.

If a client reconnects to this gateway, the answers that it was receiving are adopted: this gateway continues to send
them, and must read the partition to which their worker writes. A partition has one reader, for as long as an adopted
answer from it is open. For an answer adopted later the reader has to go back to where that answer begins. It does so
once for all answers that are waiting, at most once a second, and less often the farther the last way back was. Only the
records of these sessions are decoded.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.request.cursor import Place
from shared.errors import BrokerUnavailable
from shared.kafka import LogReader
from shared.process.clock import monotonic_s
from shared.process.tasks import Tasks
from shared.records.log_readers import decode_replies
from shared.telemetry.availability import Availability
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.wire.messages import Reply

_READ_MS: Final = 50
_READ_RECORDS: Final = 1_000
_RETRY_S: Final = 0.2
_BACK_S: Final = 1.0
_BACK_RECORDS_PER_S: Final = 50_000

log = get_logger()


@dataclass(slots=True)
class _Followed:
    """A followed partition.

    Attributes:
        receive: called with its replies
        keys: the record key of each followed answer
        wanted: how many answers have each key
        joining: the answers that wait for the next seek, each with its offset and a future that is done once the
            replies in the log have been passed on
    """

    receive: Callable[[list[Reply]], None]
    task: asyncio.Task[None] | None = None
    keys: dict[str, bytes] = field(default_factory=dict)
    wanted: Counter[bytes | None] = field(default_factory=Counter)
    joining: list[tuple[int, "asyncio.Future[None]"]] = field(default_factory=list)


@dataclass(slots=True)
class LogFollower:
    """Follows partitions. `open_reader` makes the reader of a partition."""

    open_reader: Callable[[int], LogReader]
    _followed: dict[int, _Followed] = field(default_factory=dict)
    _next_back_s: dict[int, float] = field(default_factory=dict)
    _tasks: Tasks = field(
        default_factory=lambda: Tasks(task_failed)
    )  # if one fails, its adopted answers end by their deadlines

    def join(
        self, place: Place, session_id: str, response_id: str, receive: Callable[[list[Reply]], None]
    ) -> "asyncio.Future[None]":
        """Follow an answer from the place where its replies begin, until `leave` is called.

        Args:
            place: where the answer's replies begin
            session_id: the answer's session
            response_id: the answer
            receive: called with the replies to all adopted answers, in the order of the log

        Returns:
            A future that is done once every reply now in the log has been passed on.
        """
        caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        followed = self._followed.get(place.partition)
        if followed is None:
            followed = self._followed[place.partition] = _Followed(receive)
            work = self._follow(place.partition, followed)
            followed.task = self._tasks.start(work, f"follow {place.partition}")
        if response_id not in followed.keys:
            key = followed.keys[response_id] = session_id.encode()
            followed.wanted[key] += 1
        followed.joining.append((place.offset, caught_up))
        return caught_up

    def leave(self, partition: int, response_id: str) -> None:
        """Stop following an answer that has ended. Does nothing if it never joined."""
        followed = self._followed.get(partition)
        if followed is not None and (key := followed.keys.pop(response_id, None)) is not None:
            followed.wanted[key] -= 1
            if not followed.wanted[key]:
                del followed.wanted[key]
            if not followed.keys:
                del self._followed[partition]
                _resolve(followed.joining)
                if followed.task is not None and followed.task is not asyncio.current_task():
                    followed.task.cancel()  # it may be waiting for the broker

    async def stop(self) -> None:
        await self._tasks.cancel()

    async def _follow(self, partition: int, followed: _Followed) -> None:
        reader, outage = self.open_reader(partition), Availability("kafka log")
        catching_up: list[tuple[int, asyncio.Future[None]]] = []
        try:
            await reader.start()
            log.info("following", partition=partition)
            end: int | None = None
            while followed.keys:
                try:
                    rest_s = self._next_back_s.get(partition, 0.0) - monotonic_s()
                    if end is None and rest_s > 0:
                        await asyncio.sleep(rest_s)
                        continue
                    if followed.joining and not catching_up and rest_s <= 0:
                        end = await self._seek_back(reader, partition, followed)
                        catching_up, followed.joining = followed.joining, []
                    wanted = followed.wanted
                    records = await reader.read(timeout_ms=_READ_MS, max_records=_READ_RECORDS, keys=wanted)
                    followed.receive(decode_replies(records))
                    if catching_up and end is not None and await reader.next_offset() >= end:
                        _resolve(catching_up)
                        catching_up = []
                    await asyncio.sleep(0)  # a read of records that were fetched already does not yield to other tasks
                except BrokerUnavailable as error:
                    outage.report_down(str(error), monotonic_s())
                    await asyncio.sleep(_RETRY_S)
        finally:
            if self._followed.get(partition) is followed:
                del self._followed[partition]
            _resolve([*catching_up, *followed.joining])
            await reader.stop()

    async def _seek_back(self, reader: LogReader, partition: int, followed: _Followed) -> int:
        """Seek to the first offset of the answers that have joined. Return the offset at which they have caught up."""
        end = await reader.end()
        start = min(offset for offset, _ in followed.joining)
        reader.seek(start)
        self._next_back_s[partition] = monotonic_s() + min(_BACK_S, max(0, end - start) / _BACK_RECORDS_PER_S)
        return end


def _resolve(waiting: list[tuple[int, "asyncio.Future[None]"]]) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_result(None)
