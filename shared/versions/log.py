"""Read the registry from `chat.versions`, and write to it."""

import asyncio
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shared.errors import BrokerUnavailable, ModelError, ProtocolError
from shared.kafka import LogReader, Outgoing, Producer, Record, read_on
from shared.process.clock import monotonic_s, wire_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.versions.registry import Entry, Registry, Unreadable, decode_entry, encode_entry, key_of, unreadable_move
from shared.versions.state import Move
from shared.wire.topics import BROADCAST_PARTITION

_READ_MS: Final = 200
_MAX_RECORDS: Final = 1_000
_RETRY_S: Final = 1.0


@dataclass(slots=True)
class VersionsLog:
    """The registry as read from its topic. It is complete once `known` is set; without Kafka it stays as it is."""

    reader: LogReader
    registry: Registry = field(default_factory=Registry)
    known: asyncio.Event = field(default_factory=asyncio.Event)
    _reported_epoch: int = 0

    @classmethod
    def of(cls, settings: KafkaSettings, *, client_id: str, keeps_notes: bool = False) -> "VersionsLog":
        """Return a log; its registry has the rollouts' notes only with `keeps_notes`."""
        topic = settings.topics.versions
        reader = LogReader(settings, client_id=client_id, topic=topic, partition=BROADCAST_PARTITION, unhurried=True)
        return cls(reader, Registry(keeps_notes=keeps_notes))

    async def start(self) -> None:
        """Read all records written so far. Raises `BrokerUnavailable`."""
        await self.reader.start()
        self.reader.seek(0)
        await self.catch_up()

    async def catch_up(self) -> None:
        """Read to the log's present end, then apply all records in one step: no caller sees a registry that is between
        two states. Do not call it while `watch` runs. Raises `BrokerUnavailable`."""
        end, records = await self.reader.end(), list[Record]()
        while await self.reader.next_offset() < end:
            records += await self.reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)
        self._apply(records)

    async def watch(self, changed: Callable[[], None] = lambda: None) -> None:
        """Read all, then read on until cancelled; `changed` is called after each batch, and each move is logged. The
        broker and the topic may come later: before that nothing is known, and `known` is not set."""
        metrics.versions_epoch.set_function(self._epoch)
        outage = Availability("kafka versions")
        while not self.known.is_set():
            try:
                await self.start()
            except BrokerUnavailable as error:
                outage.report_down(str(error), monotonic_s())
                await self.reader.stop()
                await asyncio.sleep(_RETRY_S)
            else:
                self.known.set()
        self.report()
        changed()

        async def read() -> list[Record]:
            return await self.reader.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS)

        def handle(records: list[Record]) -> None:
            if records:
                self._apply(records)
                self.report()
                changed()

        await read_on("kafka versions", read, handle)

    async def append(self, producer: Producer, topic: str, entry: Entry, over: int = 0) -> bool:
        """Write a record and read up to it; not while `watch` runs. Return whether it counts: False if another author
        made that move first. Raises `BrokerUnavailable`; `ModelError` if the newest move is unreadable, not `over`."""
        blocked = self.registry.blocked if self.registry.epoch != over else None
        if isinstance(entry, Move) and blocked is not None:
            raise ModelError(f"{blocked}; nothing was changed")
        await producer.publish(outgoing(topic, entry))
        await self.catch_up()
        return not isinstance(entry, Move) or entry in self.registry.moves

    async def stop(self) -> None:
        await self.reader.stop()

    def report(self) -> None:
        """Log the newest move once, or that it cannot be read; `holds_from` is the moment that it waits for."""
        epoch, state = self.registry.epoch, self.registry.state
        if epoch == self._reported_epoch:
            return
        self._reported_epoch = epoch
        if self.registry.blocked is not None:
            get_logger().error("version_unreadable", epoch=epoch, action="the state before it is kept; upgrade")
            return
        holds_from = state.effective_unix_ms or None
        get_logger().info("versions_changed", epoch=epoch, aliases=state.aliases, holds_from=holds_from)

    def _epoch(self) -> float:
        return self.registry.state_at(wire_unix_ms()).epoch if self.known.is_set() else math.nan

    def _apply(self, records: list[Record]) -> None:
        for record in records:
            apply_record(self.registry, record)
        metrics.versions_unreadable.set(self.registry.epoch - self.registry.state.epoch)


def apply_record(registry: Registry, record: Record) -> None:
    """Apply a record of the log; count one that cannot be decoded."""
    entry: Entry | Unreadable | None
    try:
        entry = decode_entry(record.value)
    except ProtocolError:
        entry = unreadable_move(record.key)
    if entry is None or isinstance(entry, Unreadable):
        metrics.records_ignored.labels("version").inc()
    if entry is not None:
        registry.apply(entry)


def outgoing(topic: str, entry: Entry) -> Outgoing:
    """Return the record of an entry, under a key that no other record has."""
    return Outgoing(topic, encode_entry(entry), key=key_of(entry, secrets.token_hex(8)), partition=BROADCAST_PARTITION)
