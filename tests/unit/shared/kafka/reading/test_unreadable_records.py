"""A record that aiokafka cannot decode does not lose other records: those drained with it are read again after
any failure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, NotLeaderForPartitionError, TopicAuthorizationFailedError

from shared.errors import BrokerRefuses, BrokerUnavailable
from shared.kafka import GroupReader, LogReader, PartitionReader, Record
from shared.kafka.reading.unreadable import FetchPositions
from shared.settings.kafka import KafkaSettings

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
BAD = b"bad"
SETTINGS = KafkaSettings()


@dataclass
class Consumer:
    """Drains its partitions one after the other like aiokafka: a bad record ends its partition's generator, and the
    next call drops the data already fetched for it.

    `read_faults` and `lookup_faults` are raised by the next calls, None for no fault; each `arrives` is appended to P
    by one call.
    """

    logs: dict[TopicPartition, list[bytes]]
    read_faults: list[KafkaError | None] = field(default_factory=list)
    lookup_faults: list[KafkaError | None] = field(default_factory=list)
    slow_reads: int = 0
    arrives: list[bytes] = field(default_factory=list)
    at: dict[TopicPartition, int] = field(init=False)
    _fetcher: Any = field(init=False)

    def __post_init__(self) -> None:
        self.at = dict.fromkeys(self.logs, 0)
        self._fetcher = SimpleNamespace(_records={})

    def assignment(self) -> set[TopicPartition]:
        return set(self.logs)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.at[partition] = offset

    async def committed(self, partition: TopicPartition) -> int | None:
        self._fail_by(self.lookup_faults)
        return None

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int, max_records: int | None
    ) -> dict[TopicPartition, list[Any]]:
        self._fail_by(self.read_faults)
        if partitions and self.slow_reads:
            self.slow_reads -= 1
            return {}
        stale = set(self._fetcher._records)
        self._fetcher._records.clear()
        drained = self._drain([each for each in partitions or self.logs if each not in stale], max_records)
        return drained or self._drain(partitions or tuple(self.logs), max_records)

    def _drain(self, partitions: Sequence[TopicPartition], max_records: int | None) -> dict[TopicPartition, list[Any]]:
        drained: dict[TopicPartition, list[Any]] = {}
        for partition in partitions:
            fetched = SimpleNamespace(next_fetch_offset=self.at[partition])
            fetched._records_iterator = self._decoded(partition, fetched)
            self._fetcher._records[partition] = SimpleNamespace(_partition_records=fetched)
            for item in fetched._records_iterator:
                drained.setdefault(partition, []).append(item)
                if len(drained[partition]) == max_records:
                    break
            self.at[partition] = fetched.next_fetch_offset
            del self._fetcher._records[partition]
        return drained

    def _decoded(self, partition: TopicPartition, fetched: Any) -> Iterator[Any]:
        for offset in range(fetched.next_fetch_offset, len(self.logs[partition])):
            value = self.logs[partition][offset]
            if value == BAD:
                b"\xff".decode()
            fetched.next_fetch_offset = offset + 1
            yield SimpleNamespace(
                topic="t",
                partition=partition.partition,
                offset=offset,
                key=None,
                value=value,
                headers=(),
                timestamp=0,
                timestamp_type=0,
            )

    def _fail_by(self, faults: list[KafkaError | None]) -> None:
        error = faults.pop(0) if faults else None
        if error is not None:
            self.logs[P] = [*self.logs[P], *self.arrives]
            raise error


def told(records: Sequence[Record]) -> list[tuple[int, int, bytes | None]]:
    return [(record.partition, record.offset, BAD if record.unreadable else record.value) for record in records]


async def read_all(handed: FetchPositions, consumer: Consumer) -> list[tuple[int, int, bytes | None]]:
    """Read until a call neither returns nor raises anything; return the records by partition and offset."""
    found: list[tuple[int, int, bytes | None]] = []
    for _ in range(20):
        try:
            records = await handed.read(consumer, timeout_ms=1, max_records=None, limit_ms=1)  # type: ignore[arg-type]
        except KafkaError:
            continue
        found += told(records)
    return sorted(found)


LOGS = {P: [b"p0", b"p1"], Q: [b"q0", BAD, b"q2"]}
ALL = [(0, 0, b"p0"), (0, 1, b"p1"), (1, 0, b"q0"), (1, 1, BAD), (1, 2, b"q2")]


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"lookup_faults": [NotLeaderForPartitionError()]},
        {"lookup_faults": [None, NotLeaderForPartitionError()]},
        {"lookup_faults": [NotLeaderForPartitionError()] * 3},
        {"read_faults": [None, NotLeaderForPartitionError()]},
        {"read_faults": [None, None, NotLeaderForPartitionError()]},
        {"slow_reads": 1},
    ],
)
async def test_every_record_is_read_once_whatever_fails_while_a_bad_one_is_skipped(faults: dict[str, Any]) -> None:
    assert await read_all(FetchPositions(), Consumer(dict(LOGS), **faults)) == ALL


async def test_new_records_do_not_hide_those_to_be_read_again() -> None:
    """The leader of one partition cannot be reached, while another partition continues."""
    consumer = Consumer(dict(LOGS), lookup_faults=[NotLeaderForPartitionError()], arrives=[b"p2"])
    assert await read_all(FetchPositions(), consumer) == sorted([*ALL, (0, 2, b"p2")])


async def test_a_partition_revoked_while_a_record_is_skipped_restarts_at_its_committed_offset() -> None:
    handed = FetchPositions()
    consumer = Consumer(dict(LOGS), read_faults=[None, None, NotLeaderForPartitionError()])
    with pytest.raises(NotLeaderForPartitionError):
        await handed.read(consumer, timeout_ms=1, max_records=None, limit_ms=1)  # type: ignore[arg-type]
    handed.forget(Q)
    assert handed.next_offset(Q) is None
    assert await read_all(handed, consumer) == ALL


@pytest.mark.parametrize(
    ("error", "raised"),
    [(NotLeaderForPartitionError(), BrokerUnavailable), (TopicAuthorizationFailedError("t"), BrokerRefuses)],
)
async def test_a_log_read_raises_when_the_broker_goes_away_while_a_record_is_skipped(
    error: KafkaError, raised: type[Exception]
) -> None:
    consumer = Consumer({P: [b"p0", BAD, b"p2"]}, read_faults=[None, error])
    reader = LogReader(SETTINGS, client_id="t", topic="t", partition=0)
    reader._consumer = consumer  # type: ignore[assignment]
    reader.seek(0)
    with pytest.raises(raised):
        await reader.read(timeout_ms=1, max_records=10)
    found = [*await reader.read(timeout_ms=1, max_records=10), *await reader.read(timeout_ms=1, max_records=10)]
    assert told(found) == [(0, 0, b"p0"), (0, 1, BAD), (0, 2, b"p2")]


async def test_a_group_without_access_rights_gets_an_error_that_names_their_list() -> None:
    reader = GroupReader(SETTINGS, client_id="t", topics=["t"], group="g")
    reader._consumer = Consumer(  # type: ignore[assignment]
        dict(LOGS), read_faults=[None, TopicAuthorizationFailedError("t")]
    )
    with pytest.raises(BrokerUnavailable, match="topics acls"):
        await reader.read(timeout_ms=1, max_records=10)


@dataclass
class Subscribed:
    """A consumer with these partitions assigned by aiokafka."""

    known: set[TopicPartition]
    subscribed: bool = True
    assigned: list[TopicPartition] = field(default_factory=list)

    def assignment(self) -> set[TopicPartition]:
        return self.known

    def unsubscribe(self) -> None:
        self.subscribed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert not self.subscribed
        self.assigned = partitions


@pytest.mark.parametrize(("partitions", "held"), [(None, [P, Q]), ([1], [Q])])
def test_a_partition_reader_keeps_its_partitions_when_the_topic_grows(
    partitions: list[int] | None, held: list[TopicPartition]
) -> None:
    """A subscription would restart every partition at its beginning when the topic gets another one."""
    consumer = Subscribed({P, Q})
    reader = PartitionReader(SETTINGS, client_id="t", topic="t", partitions=partitions)
    assert reader._assign(consumer) == consumer.assigned == held  # type: ignore[arg-type]
