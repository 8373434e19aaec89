"""Consumed and produced records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_LOG_APPEND_TIME: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record.

    Attributes:
        arrived_unix_ms: the broker's time of arrival if the topic uses `message.timestamp.type=LogAppendTime`, else
            None. The times in headers and values come from other clocks; this one shows how wrong they are.
        unreadable: why the record could not be decoded; such a record has no key, value or headers.
    """

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
        """The record's partition (topic and number) and its offset."""
        return (self.topic, self.partition), self.offset


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to produce."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)


def record_of(item: Any) -> Record:
    """Convert aiokafka's record.

    The last of several headers with the same name counts, as in Kafka's `lastHeader`. A header without a value is
    dropped.
    """
    return Record(
        item.topic,
        item.partition,
        item.offset,
        item.key,
        item.value,
        {name: value for name, value in item.headers if value is not None},
        item.timestamp if item.timestamp_type == _LOG_APPEND_TIME else None,
    )
