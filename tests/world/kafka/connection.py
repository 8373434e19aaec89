"""A connection to a broker, which replaces `aiokafka.conn.AIOKafkaConnection` and sends one request after the other."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaConnectionError

from tests.world.virtual.node import NODE, Handle

if TYPE_CHECKING:
    from tests.world.kafka.broker import Kafka

# The lowest and the highest version that the world's brokers support, by API key.
VERSIONS: Final = {
    0: (3, 3),
    1: (4, 4),
    2: (2, 2),
    3: (1, 1),
    8: (2, 2),
    9: (3, 3),
    10: (1, 1),
    11: (5, 5),
    12: (1, 1),
    13: (1, 1),
    14: (3, 3),
    18: (0, 0),
    22: (0, 0),
    32: (1, 1),
}
_AT_ONCE: Final = (1, 12)
"""Fetches and heartbeats: a delayed request has the same effect as a delayed response."""


class Connection:
    """A client's connection to a broker. `idle` answers a fetch that has expired while it waited for records and whose
    answer no consumer needs yet."""

    def __init__(self, kafka: "Kafka", broker: int, host: str, options: dict[str, Any]) -> None:
        self.kafka, self.broker, self.host, self.port = kafka, broker, host, kafka.port(broker)
        self.node = NODE.get()
        self.idle: Any = None
        self._loop = kafka.loop
        self._timeout_s = options.get("request_timeout_ms", 40_000) / 1_000
        self._on_close = options.get("on_close")
        self._open = True
        self._waiting: deque[tuple[Any, asyncio.Future[Any], float]] = deque()
        self._expiry: Handle | None = None
        self._busy = False
        kafka.connections[self] = None

    def connected(self) -> bool:
        return self._open

    def send(self, request: Any, expect_response: bool = True) -> Any:
        if not self._open:
            raise KafkaConnectionError(f"No connection to broker at {self.host}:{self.port}")
        made, future = request.prepare(VERSIONS), self._loop.create_future()
        self._waiting.append((made, future, self._loop.now))
        if not expect_response:
            future.set_result(None)
        if self._expiry is None:
            self._expire()
        self.kafka.asked(self, made)
        if not self._busy:
            self._next()
        return future

    def _expire(self) -> None:
        """Fail the request that has timed out, unless it is an idle fetch, and schedule the check of the next one."""
        self._expiry = None
        for _, future, since_s in self._waiting:
            if not future.done():
                left_s = self._timeout_s if self.idle else since_s + self._timeout_s - self._loop.now
                if left_s > 0:
                    self._expiry = self._loop.after(left_s, self._expire, node=self.node)
                    return
                future.set_exception(TimeoutError())

    def _next(self) -> None:
        if self._waiting and self._open:
            self._busy = True
            lag_s = self.kafka.lag_s(self.broker)
            if self._waiting[0][0].API_KEY in _AT_ONCE:
                self._arrive(lag_s)
            else:
                self._loop.after(lag_s, self._arrive)

    def _arrive(self, late_s: float = 0.0) -> None:
        if not self._open or not self._waiting:
            return
        if not self.node.alive:
            self._open = False
            self.kafka.connections.pop(self, None)
            return
        request, future, _ = self._waiting[0]
        self.kafka.handle(self, request, lambda response: self._answer(future, response, late_s))

    def _answer(self, future: "asyncio.Future[Any]", response: Any, late_s: float) -> None:
        self._loop.after(late_s + self.kafka.lag_s(self.broker), self._deliver, future, response, node=self.node)

    def _deliver(self, future: "asyncio.Future[Any]", response: Any) -> None:
        if not self._open or not self._waiting or self._waiting[0][1] is not future:
            return
        request, *_ = self._waiting.popleft()
        self._busy = False
        self._loop.trace("kafka", self.node.name, type(response).__name__)
        if not future.done():
            future.set_result(response)
            self.kafka.asked(self, request)
        self._next()

    def close(self, reason: Any = None, exc: Any = None) -> "asyncio.Future[None]":
        del exc
        done = self._loop.create_future()
        done.set_result(None)
        if self._open:
            self._open = False
            self.kafka.connections.pop(self, None)
            for _, future, _ in self._waiting:
                if not future.done():
                    future.set_exception(KafkaConnectionError(f"Connection at {self.host}:{self.port} closed"))
                    future.exception()
            self._waiting.clear()
            if self._on_close is not None:
                on_close, self._on_close = self._on_close, None
                on_close(self, reason)
        return done
