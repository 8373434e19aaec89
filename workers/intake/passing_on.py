"""Forward requests to the champion's topics if their lane is closed or the version that they name is not loaded.

The copies have the same id, key, headers and deadline, and each conversation's order. A shadow's requests are dropped
instead. A record is done when Kafka has acknowledged its copy. If the worker dies in between, the copy may be written
twice; the champion answers a repeated request once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shared.kafka import Producer, Record
from shared.process.clock import now_unix_ms
from shared.records.offsets import OffsetTracker
from shared.records.passed_on import champions_copy
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.lanes import PASSED_ON, Lane
from shared.wire.requests import Order
from shared.wire.topics import TopicNames
from workers.intake.passing import HeldRecords, Origin, PassingStep, next_step
from workers.request.job import Job
from workers.request.open_answers import OpenAnswers

_POLL_S: Final = 0.01


@dataclass(slots=True, kw_only=True)
class PassingOn:
    """Forwards requests of one lane. `closed`: the lane has no version any more."""

    producer: Producer
    topics: TopicNames
    lane: Lane
    offsets: OffsetTracker
    answers: OpenAnswers
    closed: bool = False
    _held: HeldRecords[Record] = field(default_factory=HeldRecords, init=False)

    def hold(self, record: Record) -> None:
        """Keep the record of a request that has begun, as long as it may have to be forwarded."""
        self._held.add(record.origin, record.key, record, is_open=self.offsets.is_open)

    def records(self, job: Job) -> list[Record]:
        """Return a job's records that this worker still owns, in log order."""
        held = [self._held.get(origin) for origin in sorted(job.origins) if self.offsets.is_open(*origin)]
        return [record for record in held if record is not None]

    async def pass_on(
        self, order: Order, record: Record, *, cancelled: Callable[[], bool], lacks: Callable[[], bool]
    ) -> bool:
        """Forward a request, after earlier ones of its conversation, if its lane is closed or its version is missing.

        Args:
            order: the request.
            record: its record.
            cancelled: whether it was cancelled.
            lacks: whether this worker has not loaded the version that it names.

        Returns:
            Whether it was forwarded.

        Raises:
            BrokerUnavailable, ProtocolError: the copy could not be written.
        """
        while (step := self._next_step(order, record, cancelled, lacks)) is not PassingStep.PASS_ON:
            if step is PassingStep.SERVE:
                return False
            await asyncio.sleep(_POLL_S)
        if self.lane in PASSED_ON:
            await self.producer.publish(champions_copy(record, self.topics))
            metrics.passed_on.labels(self.lane).inc()
            get_logger().info("passed_on", request_id=order.request.id, lane=self.lane)
        self.offsets.done(*record.origin)
        return True

    def _next_step(
        self, order: Order, record: Record, cancelled: Callable[[], bool], lacks: Callable[[], bool]
    ) -> PassingStep:
        if not (self.closed or lacks()):
            return PassingStep.SERVE
        return next_step(
            closed=True,
            cancelled=cancelled(),
            late=order.deadline.expired(now_unix_ms(), started=False),
            behind=any(map(self._may_leave, self._held.before(record.origin, record.key))),
        )

    def _may_leave(self, origin: Origin) -> bool:
        return self.offsets.is_open(*origin) and not self.answers.ends_here(origin)
