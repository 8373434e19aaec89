"""A connection to a broker, in place of `aiokafka.conn.AIOKafkaConnection`: one request after the other."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaConnectionError
from aiokafka.util import wait_for

from tests.world.node import NODE

if TYPE_CHECKING:
    from tests.world.kafka.broker import Kafka

# By API key: the lowest and the highest version that the world's brokers speak.
VERSIONS: Final = {
    0: (3, 3),
    1: (4, 4),
    2: (1, 1),
    3: (1, 1),
    8: (2, 2),
    9: (1, 1),
    10: (1, 1),
    11: (5, 5),
    12: (1, 1),
    13: (1, 1),
    14: (3, 3),
    18: (0, 0),
    22: (0, 0),
    32: (1, 1),
}


class Connection:
    """`idle` answers a fetch that waits for records though its time is over: nobody needs the answer yet."""

    def __init__(self, kafka: "Kafka", broker: int, host: str, options: dict[str, Any]) -> None:
        self.kafka, self.broker, self.host, self.port = kafka, broker, host, kafka.port(broker)
        self.node = NODE.get()
        self.idle: Any = None
        self._loop = kafka.loop
        self._timeout_s = options.get("request_timeout_ms", 40_000) / 1_000
        self._on_close = options.get("on_close")
        self._open = True
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._busy = False
        kafka.connections[self] = None

    def connected(self) -> bool:
        return self._open

    def send(self, request: Any, expect_response: bool = True) -> Any:
        del expect_response
        if not self._open:
            raise KafkaConnectionError(f"No connection to broker at {self.host}:{self.port}")
        made, future = request.prepare(VERSIONS), self._loop.create_future()
        self._waiting.append((made, future))
        self.kafka.asked(self, made)
        if not self._busy:
            self._next()
        return wait_for(future, self._timeout_s)

    def _next(self) -> None:
        if self._waiting and self._open:
            self._busy = True
            self._loop.after(self.kafka.lag_s(self.broker), self._arrive)

    def _arrive(self) -> None:
        if not self._open or not self._waiting:
            return
        if not self.node.alive:
            self._open = False
            self.kafka.connections.pop(self, None)
            return
        request, future = self._waiting[0]
        self.kafka.handle(self, request, lambda response: self._answer(future, response))

    def _answer(self, future: "asyncio.Future[Any]", response: Any) -> None:
        self._loop.after(self.kafka.lag_s(self.broker), self._deliver, future, response, node=self.node)

    def _deliver(self, future: "asyncio.Future[Any]", response: Any) -> None:
        if not self._open or not self._waiting or self._waiting[0][1] is not future:
            return
        request, _ = self._waiting.popleft()
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
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(KafkaConnectionError(f"Connection at {self.host}:{self.port} closed"))
                    future.exception()
            self._waiting.clear()
            if self._on_close is not None:
                on_close, self._on_close = self._on_close, None
                on_close(self, reason)
        return done
