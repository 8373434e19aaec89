"""Process each record independently until it is done, so that a bad record does not block the commits of later ones.

A record that cannot be decoded or handled becomes a dead letter, and its reader gets an error if the record names its
id and a reply topic. A record that kills its process becomes a dead letter after its fourth delivery.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Record
from shared.process.clock import wire_unix_ms
from shared.process.tasks import Tasks
from shared.records.commits import Commits
from shared.records.dead_letters import POISON, Letters, origin_of, own_fault, poison
from shared.records.deliveries import MAX_DELIVERIES
from shared.records.offsets import OffsetTracker
from shared.telemetry.faults import caught, contained, record_failed
from shared.wire.failed_ends import detail_of, failed_end
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.requests import Defaults, Target, asker_of, names_in, open_request

_RETRY_S: Final = 0.2
# This many records may wait for their dead letter without counting as `busy`.
_MOST_ASIDE: Final = 100


@dataclass(slots=True)
class RecordProcessor:
    """Processes records, and keeps track of those in progress.

    `handle` and `refuse` are called again after `BrokerUnavailable`.

    Attributes:
        handle: accepts a request, and marks its record as done in `offsets`, now or later.
        refuse: publishes the terminal event of a request that is not served, and returns when that is acknowledged.
        busy: the records being handled, by their tasks.
    """

    offsets: OffsetTracker
    commits: Commits
    letters: Letters
    defaults: Defaults
    handle: Callable[[ChatRequest, Record], Awaitable[None]]
    refuse: Callable[[Target, ReplyDone], Awaitable[None]]
    busy: dict[asyncio.Task[None], Record] = field(default_factory=dict)
    tasks: Tasks = field(default_factory=lambda: Tasks(record_failed))

    def start(self, record: Record, fault: Exception | None = None) -> None:
        """Process a record; with a `fault` of Replyline's own, only store it as a dead letter."""
        self.offsets.claim(*record.origin)
        work = self._process(record) if fault is None else self._fail(record, fault)
        task = self.tasks.start(work, origin_of(record))
        self.busy[task] = record
        task.add_done_callback(lambda _: self.busy.pop(task, None))

    async def _process(self, record: Record) -> None:
        """Handle a record or set it aside, unless its partition went to another process."""
        request: ChatRequest | None = None
        try:
            number = await self.commits.await_delivery(*record.origin)
            if number is None:
                return
            if (
                number <= MAX_DELIVERIES + 1
                # one more delivery only decodes it, to find its reader; if that kills a process too, it is not decoded
                # again
            ):
                request = open_request(record.value, record.headers, unreadable=record.unreadable)
            if request is None or number > MAX_DELIVERIES:
                await self._set_aside(record, poison(), request)
            else:
                await until_kafka_is_back(partial(self.handle, request, record))
        except ProtocolError as error:
            await self._set_aside(record, error, request)
        except Exception as error:  # noqa: BLE001 - counted and logged; this record is set aside
            await self._fail(record, error, request)

    async def _fail(self, record: Record, error: Exception, request: ChatRequest | None = None) -> None:
        """Set a record aside after an internal fault; decode it if that was not done yet, to find its reader."""
        caught("record", error, origin=origin_of(record))
        if request is None:
            with contained("record", origin=origin_of(record)), suppress(ProtocolError):
                request = open_request(record.value, record.headers, unreadable=record.unreadable)
        await self._set_aside(record, own_fault(error), request)

    async def _set_aside(self, record: Record, error: ProtocolError, request: ChatRequest | None) -> None:
        """Send an error to the reader and store the record as a dead letter. It is done when both are acknowledged."""
        task = asyncio.current_task()
        if task in self.busy and len(self.tasks) - len(self.busy) < _MOST_ASIDE:
            del self.busy[task]  # a record that waits here for Kafka does not use one of the slots for handling
        self.offsets.deliveries.mark_harmless(*record.origin)
        await asyncio.gather(self._publish_error(record, error, request), self.letters.put(record, error))
        self.offsets.done(*record.origin)

    async def _publish_error(self, record: Record, error: ProtocolError, request: ChatRequest | None) -> None:
        """Send an error to the reader, if the record names one, even if it is not a valid request.

        The value of a record that killed processes is not decoded again. Raises nothing, since the dead letter remains.
        """
        with contained("record", origin=origin_of(record)):
            value = None if error.code == POISON else record.value
            names = request or names_in(value, record.headers, record.key)
            if names is not None and (asker := asker_of(names, self.defaults)) is not None:
                end = failed_end(names.id, names.session_id, detail_of(error), attempt=int(wire_unix_ms()))
                await until_kafka_is_back(partial(self.refuse, asker, end))


async def until_kafka_is_back(step: Callable[[], Awaitable[None]]) -> None:
    """Call a step until it raises no `BrokerUnavailable`."""
    while True:
        try:
            return await step()
        except BrokerUnavailable:
            await asyncio.sleep(_RETRY_S)
