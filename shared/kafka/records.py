"""Records as they are read and written."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Record:
    """A consumed record. Times travel in headers and values; `arrived_unix_ms` is the broker's own clock, where a topic
    is stamped by it (`message.timestamp.type=LogAppendTime`), and shows what is wrong with the others."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    arrived_unix_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be produced."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
