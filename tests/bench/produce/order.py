"""What a process of `replyline bench produce` is told, and what it tells. Pure."""

from typing import Any

from msgspec import Struct

from tests.bench.produce.records import Stock


class Order(Struct, frozen=True, kw_only=True):
    """`config` is librdkafka's; `run` tells this process's requests from all others'. `start_s` is of the machine's
    monotonic clock; `rate` None is as fast as can be; at most `requests` are written."""

    config: dict[str, Any]
    stock: Stock
    run: int
    start_s: float
    seconds: float
    rate: float | None
    requests: int
    sessions: int


class Produced(Struct, frozen=True, kw_only=True):
    """What became of an order. `failed` were given up by librdkafka (`error`: why the first was), `unacknowledged` had
    no word a minute after the last. Times are of the monotonic clock."""

    sent: int
    failed: int
    unacknowledged: int
    value_bytes: int
    by_bucket: dict[str, int]
    start_s: float
    end_s: float
    cpu_s: float
    error: str = ""
