"""Requests with a delayed response: produce requests that wait for replicas, and fetches that wait for records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.world.kafka.connection import Connection
from tests.world.kafka.groups import Answer
from tests.world.kafka.log import Batch, Log
from tests.world.virtual.node import Handle

if TYPE_CHECKING:
    from tests.world.kafka.broker import Kafka

NOT_LEADER: Final = 6
PAUSE_S: Final = 0.03  # before an error is answered: clients retry immediately
_IDLE_S: Final = 30.0
_UNDER_WAY_S: Final = 0.01


@dataclass(eq=False)
class Produce:
    """A produce request whose batches wait for their replicas."""

    request: Any
    answer: Answer

    def __post_init__(self) -> None:
        self.results: dict[tuple[str, int], tuple[int, int]] = {}
        self.open = 0

    def watch(self, log: Log, batch: Batch) -> None:
        """Wait until a batch is replicated or its leader changes."""
        epoch, key = log.epoch, (log.topic, log.number)
        self.open += 1

        def look() -> None:
            if log.epoch == epoch and not batch.safe:
                log.changed[self] = look
                return
            self.open -= 1
            self.results[key] = (0, batch.base) if log.epoch == epoch else (NOT_LEADER, -1)
            self.tell()

        if batch.safe:
            self.open -= 1
            self.results[key] = 0, batch.base
        else:
            log.changed[self] = look

    def tell(self) -> None:
        """Answer once no batch is pending."""
        if not self.open and len(self.results) == sum(len(parts) for _, parts in self.request.topics):
            topics = self.request.topics
            told = [
                (topic, [(number, *self.results[topic, number], -1) for number, _ in parts]) for topic, parts in topics
            ]
            self.answer(told, 0)


class Fetch:
    """A fetch request that waits for records."""

    def __init__(self, kafka: "Kafka", connection: Connection, request: Any, answer: Answer) -> None:
        self._kafka, self._connection, self._request, self._answer = kafka, connection, request, answer
        self.timer: Handle | None = None
        self.over = False
        self._asked_s = kafka.loop.now

    def look(self) -> None:
        """Answer if there are records or an error, else wait for a change."""
        told, anything, wrong = self._kafka.fetched(self._connection, self._request)
        if anything and not wrong:
            self._tell(told)
        elif wrong:
            self._wait(PAUSE_S, self.end)
        elif self.timer is None:
            self._connection.idle = self.hurry
            self._wait(_IDLE_S, self.end)
            if self._connection.node.refetched_s >= self._asked_s - _UNDER_WAY_S:
                self.hurry()
        for log in () if self.over or wrong else self._logs():
            log.changed[self] = self.look

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self._kafka.loop.after(seconds, then)

    def hurry(self) -> None:
        """Answer the fetch when it expires, because its process is about to fetch other records. Otherwise no consumer
        needs an answer without records."""
        over_s = self._asked_s + self._request.max_wait_time / 1_000
        self._wait(max(0.0, over_s - self._kafka.loop.now), self.end)

    def end(self) -> None:
        """Answer with the records available."""
        if not self.over:
            self._tell(self._kafka.fetched(self._connection, self._request)[0])

    def _logs(self) -> list[Log]:
        keys = [(topic, number) for topic, parts in self._request.topics for number, *_ in parts]
        return [self._kafka.logs[key] for key in keys if key in self._kafka.logs]

    def _tell(self, told: list[Any]) -> None:
        self.over = True
        self._connection.idle = None
        if self.timer is not None:
            self.timer.cancel()
        for log in self._logs():
            log.changed.pop(self, None)
        self._answer(0, told)
