"""Records as they are read and written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_LOG_APPEND_TIME: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record. Times travel in headers and values; `arrived_unix_ms` is the broker's own clock, where a topic
    is stamped by it (`message.timestamp.type=LogAppendTime`), and shows what is wrong with the others. `unreadable`
    says why it could not be decoded; then it has neither key, value nor headers."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    arrived_unix_ms: int | None = None
    unreadable: str = ""

    @property
    def origin(self) -> tuple[tuple[str, int], int]:
        """The record's partition and its offset there."""
        return (self.topic, self.partition), self.offset


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be produced."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)


def record_of(item: Any) -> Record:
    """Return the record that aiokafka read. Of headers with one name the last counts, as by Kafka's own `lastHeader`;
    one without a value counts as none."""
    return Record(
        item.topic,
        item.partition,
        item.offset,
        item.key,
        item.value,
        {name: value for name, value in item.headers if value is not None},
        item.timestamp if item.timestamp_type == _LOG_APPEND_TIME else None,
    )
