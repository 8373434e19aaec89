"""Read the logs of reports, demand, erasures and replies, and create the records of an erasure.

Every record is handled once; a record that cannot be decoded is counted and skipped.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from shared.conversation.erasure_log import ErasureLog
from shared.conversation.erasures import MARKED_FOR_S
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, PartitionReader, Record, read_on, scan
from shared.process.clock import wire_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.telemetry.logs import get_logger
from shared.wire.codec import (
    decode_demand,
    decode_erase,
    decode_forgotten,
    decode_people,
    decode_reply,
    decode_report,
    decode_scaling,
    msgpack_encode,
)
from shared.wire.messages import Erase, Forgotten, PeopleRecord, Reply
from shared.wire.reports import WorkerReport
from shared.wire.scaling import DemandReport, ScalingRecord
from shared.wire.session_key import SessionKey
from shared.wire.topics import BROADCAST_PARTITION, PEOPLE_MS, TopicNames

log = get_logger()

_LOAD_AGAIN_S: Final = 1.0

UpdateWorker = Callable[[str, WorkerReport | None], None]
Loaded = Callable[[], object]
UpdateGateway = Callable[[str, DemandReport | None], None]


async def read_reports(reader: PartitionReader, update_worker: UpdateWorker) -> None:
    """Connect, retrying until Kafka answers, and read workers' reports until cancelled."""
    await reader.start()
    await _read(reader, "kafka workers", lambda record: apply_report(record, update_worker))


async def read_demand(reader: PartitionReader, update_gateway: UpdateGateway) -> None:
    """Connect, retrying until Kafka answers, and read gateways' demand reports until cancelled."""
    await reader.start()
    await _read(reader, "kafka demand", lambda record: _apply_demand(record, update_gateway))


async def read_scaling(reader: PartitionReader, hear: Callable[[ScalingRecord], None]) -> None:
    """Connect, retrying until Kafka answers, and read the decisions of all autoscalers until cancelled."""

    def apply(record: Record) -> None:
        try:
            hear(decode_scaling(record.value or b""))
        except ProtocolError:
            metrics.records_ignored.labels("scaling").inc()

    await reader.start()
    await _read(reader, "kafka scaling", apply)


async def _read(reader: PartitionReader, name: str, apply: Callable[[Record], None]) -> None:
    def handle(records: list[Record]) -> None:
        for record in records:
            with contained("record", offset=record.offset):
                apply(record)

    await read_on(name, reader.read, handle)


def _apply_demand(record: Record, update_gateway: UpdateGateway) -> None:
    if record.value is None:
        update_gateway((record.key or b"").decode("utf-8", "replace"), None)
        return
    try:
        report = decode_demand(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("demand").inc()
        return
    update_gateway(report.gateway_id, report)


def apply_report(record: Record, update_worker: UpdateWorker) -> None:
    """Call `update_worker` with a record's worker id and report; the report is None if the worker left.

    A record that is not a report is counted and skipped.
    """
    if record.value is None:
        update_worker((record.key or b"").decode("utf-8", "replace"), None)
        return
    try:
        report = decode_report(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("report").inc()
        return
    update_worker(report.worker_id, report)


def erasure_records(topics: TopicNames, session: SessionKey, generation: int) -> tuple[Outgoing, ...]:
    """Return the records of an erasure.

    The first makes workers and gateways drop earlier generations; the second is for gateways that read what people said
    from its beginning; the third makes `replyline learn` delete its copies.
    """
    erase = Erase(tenant=session.tenant, session_id=session.session_id, generation=generation)
    record = Outgoing(topics.erasures, msgpack_encode(erase), partition=BROADCAST_PARTITION)
    return record, people_record(topics, erase), forgotten_record(topics, session, generation)


def people_record(topics: TopicNames, record: PeopleRecord) -> Outgoing:
    """Return a record of `chat.people`."""
    return Outgoing(topics.people, msgpack_encode(record), partition=BROADCAST_PARTITION)


def forgotten_record(topics: TopicNames, session: SessionKey, unix_ms: int) -> Outgoing:
    """Return the record that forbids copies of a conversation's content from before `unix_ms`."""
    forgotten, key = Forgotten(person=session.digest, unix_ms=unix_ms), session.digest.encode()
    return Outgoing(topics.forgotten, msgpack_encode(forgotten), key=key, partition=BROADCAST_PARTITION)


def forgotten_of(record: Record) -> Forgotten:
    """Return what a record of `chat.forgotten` forbids, at least up to the record's arrival, as the clock of the
    gateway that wrote it may be behind. Raises `ProtocolError`."""
    told = decode_forgotten(record.value)
    return replace(told, unix_ms=max(told.unix_ms, record.arrived_unix_ms or 0))


def erased_of(record: Record) -> Forgotten:
    """Return the same of a record of `chat.erasures`. Raises `ProtocolError`."""
    erase = decode_erase(record.value)
    person = SessionKey(erase.tenant, erase.session_id).digest
    return Forgotten(person=person, unix_ms=max(erase.generation, record.arrived_unix_ms or 0))


async def read_erasures(reader: PartitionReader, erased: Callable[[Erase, int], None]) -> None:
    """Read erasures until cancelled, and call `erased` with each and its offset. Other records are counted and
    skipped."""

    def apply(record: Record) -> None:
        try:
            erased(decode_erase(record.value), record.offset)
        except ProtocolError:
            metrics.records_ignored.labels("erasure").inc()

    await _read(reader, "kafka erasures", apply)


async def read_people(reader: PartitionReader, apply: Callable[[PeopleRecord, Record], None], loaded: Loaded) -> None:
    """Read what people and their customers say until cancelled, from as far back as it is kept, and call `apply` with
    each record. Call `loaded` once what was written before has been applied. Other records are counted and skipped."""

    def apply_one(record: Record) -> None:
        try:
            apply(decode_people(record.value), record)
        except ProtocolError:
            metrics.records_ignored.labels("people").inc()

    await reader.start(since_unix_ms=int(wire_unix_ms() - PEOPLE_MS))
    end = await reader.end(BROADCAST_PARTITION)
    while (reader.next_offset(BROADCAST_PARTITION) or 0) < end:
        for record in await reader.read():
            with contained("record", offset=record.offset):
                apply_one(record)
    loaded()
    await _read(reader, "kafka people", apply_one)


async def load_erasures(settings: KafkaSettings, erasures: ErasureLog) -> None:
    """Load what was written to the topic before this process began to read it, as far back as an outage may last.
    Try again until Kafka answers."""
    end = erasures.begin
    while not erasures.whole:
        since_unix_ms, found, begin = int(wire_unix_ms() - MARKED_FOR_S * 1_000), list[tuple[int, Erase]](), end
        try:
            async for kept in scan(settings, settings.topics.erasures, since_unix_ms=since_unix_ms):
                if kept.record.offset < end and kept.record.partition == BROADCAST_PARTITION:
                    begin = min(begin, kept.record.offset)
                    with suppress(ProtocolError):
                        found.append((kept.record.offset, decode_erase(kept.record.value)))
        except BrokerUnavailable as error:
            log.warning("erasures_not_loaded", cause=str(error), action="edges wait until they are")
            await asyncio.sleep(_LOAD_AGAIN_S)
        else:
            erasures.load(found, begin)


async def consume_replies(reader: PartitionReader, receive: Callable[[list[Reply]], None]) -> None:
    """Read replies until cancelled. Records that are not replies are counted and skipped."""

    def handle(records: list[Record]) -> None:
        if records:
            receive(decode_replies(records))

    await read_on("kafka replies", reader.read, handle)


def decode_replies(records: Iterable[Record]) -> list[Reply]:
    """Return the replies in the records. Records that are not replies are counted and skipped."""
    replies: list[Reply] = []
    for record in records:
        with contained("record", offset=record.offset):
            try:
                replies.append(decode_reply(record.value))
            except ProtocolError:
                metrics.replies_dropped.labels("undecodable").inc()
    return replies
