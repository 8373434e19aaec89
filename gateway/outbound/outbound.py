"""Carry out errands: orders to post an answer to a help desk, stored as records of a Kafka topic, one topic per help
desk.

The gateways read the topic as a consumer group, so each errand goes to one of them. It is committed when it is done; if
a gateway dies before that, another one carries out the errand again.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, Protocol

from gateway.outbound.calls import Calls
from gateway.outbound.signed_webhook import SignedWebhook
from gateway.outbound.standard_webhook import handoff_event
from shared.conversation.handoffs import decode_handoff
from shared.errors import ProtocolError
from shared.kafka import GroupReader, Record, read_on
from shared.process.keyed_locks import KeyedLocks
from shared.process.tasks import Tasks
from shared.records.commits import Commits
from shared.records.deliveries import MAX_DELIVERIES
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.telemetry import metrics
from shared.telemetry.faults import caught, record_failed
from shared.telemetry.logs import get_logger

_READ_MS: Final = 500
_MAX_RECORDS: Final = 100
_MOST_OPEN: Final = 2_000  # of them one conversation may have any number
_MOST_AT_ONCE: Final = 200

log = get_logger()


class CarryOut(Protocol):
    async def __call__(self, record: Record, *, again: bool) -> None:
        """Carry out an errand and return when it is done. `again`: another gateway may have done part of it."""


class Errands:
    """The errands of one topic, shared with the other gateways. A record is committed once it is carried out. A record
    on which four gateways have crashed is skipped. One conversation's errands are carried out one after the other, so
    that a flood in it, or a desk that refuses it for minutes, delays no other conversation."""

    def __init__(self, name: str, reader: GroupReader, carry_out: CarryOut) -> None:
        self.name = name
        self._reader = reader
        self._carry_out = carry_out
        self._offsets = OffsetTracker()
        self._commits = Commits(reader, self._offsets)
        self._tasks = Tasks(record_failed)
        self._conversations = KeyedLocks()
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    async def run(self) -> None:
        """Join the group, and carry out errands until cancelled."""
        await self._reader.start(self._commits.part)
        await asyncio.gather(self._commits.run(), read_on(f"kafka {self.name}", self._read, self._take))

    async def leave(self) -> None:
        """Leave unfinished errands to the other gateways."""
        await self._tasks.cancel()
        try:
            await self._commits.part()
        finally:
            await self._reader.stop()

    async def _read(self) -> list[Record]:
        await self._tasks.room(_MOST_OPEN)
        return await self._reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)

    def _take(self, records: Iterable[Record]) -> None:
        self._offsets.lose(self._reader.pop_lost())
        self._offsets.pass_over(self._reader.pop_passed())
        for record in records:
            if self._offsets.open(*record.origin):
                self._offsets.claim(*record.origin)
                self._tasks.start(self._in_order(record), f"{record.topic}/{record.partition}/{record.offset}")

    async def _in_order(self, record: Record) -> None:
        """Carry out an errand after its conversation's earlier ones."""
        async with self._conversations.hold(record.key), self._at_once:
            await self._work(record)

    async def _work(self, record: Record) -> None:
        number = await self._commits.await_delivery(*record.origin)
        if number is None:  # another gateway has the partition
            return
        try:
            if number > MAX_DELIVERIES:
                log.error("errand_left", errand=self.name, origin=str(record.origin), deliveries=number)
            else:
                await self._carry_out(record, again=number > 1)
        except Exception as error:  # noqa: BLE001 - counted and logged; the following records are carried out
            caught("record", error, errand=self.name, origin=str(record.origin))
        self._offsets.done(*record.origin)


class Outbound:
    """The errands of every help desk that is configured."""

    def __init__(self, settings: Settings, source: str) -> None:
        self._group = partial(GroupReader, settings.kafka, client_id=source, unhurried=True)
        self._prefix = settings.kafka.topic_prefix
        self._calls: list[Calls] = []
        self._errands: list[Errands] = []
        handoff = settings.handoff
        if handoff.webhook_url:
            webhook = SignedWebhook(handoff, self.calls({}), "replyline handoffs list", metrics.webhooks)
            self.add("webhook", settings.kafka.topics.handoffs, partial(post_handoff, webhook))

    def calls(self, headers: Mapping[str, str]) -> Calls:
        """Return an HTTP client for a help desk. `leave` closes it."""
        self._calls.append(Calls(headers))
        return self._calls[-1]

    def add(self, name: str, topic: str, carry_out: CarryOut) -> None:
        reader = self._group(topics=[topic], group=f"{self._prefix}replyline-{name}")
        self._errands.append(Errands(name, reader, carry_out))

    def start(self, tasks: Tasks) -> None:
        for errands in self._errands:
            tasks.start(errands.run(), errands.name)

    async def leave(self, tasks: Tasks) -> None:
        """Leave unfinished errands to the other gateways."""
        async with AsyncExitStack() as closing:
            for calls in self._calls:
                closing.push_async_callback(calls.close)
            for errands in self._errands:
                await tasks.cancel(errands.name)
                closing.push_async_callback(errands.leave)


async def post_handoff(webhook: SignedWebhook, record: Record, *, again: bool) -> None:
    """Return when the record's hand-off is accepted or given up. Repeated deliveries have the same id."""
    del again
    try:
        handoff = decode_handoff(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("handoff").inc()
        return
    await webhook.deliver(handoff.id, handoff_event(handoff), handoff.created_unix_ms)
