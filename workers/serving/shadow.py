"""Compare the answer of a model version in the shadow lane with the answer that the customer got. No client receives
the shadow's answer.

A worker of the lane `shadow` uses the classes of this module in place of its reply publisher, history and dead letters:
answers are counted, and their comparison is published without any text.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, Record
from shared.process.tasks import Tasks
from shared.records.dead_letters import origin_of
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.telemetry.logs import get_logger
from shared.wire.codec import msgpack_encode
from shared.wire.lanes import SHADOW
from shared.wire.messages import ReplyDelta, ReplyDone
from shared.wire.outcome import CLAIM_NOTHING
from shared.wire.reports import Observation
from shared.wire.requests import Target
from shared.wire.topics import BROADCAST_PARTITION, TopicNames
from workers.answer.comparison import Compared
from workers.request.job import Job

log = get_logger()

_MOST_PUBLISHING: Final = 64
_TOO_LATE: Final = frozenset({"deadline", "infeasible"})


class NoReplies:
    """A reply publisher that publishes nothing and settles each end immediately."""

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        """Publish no text."""

    def done(self, target: Target, done: ReplyDone, settled: Callable[[], None]) -> None:  # noqa: ARG002 - the contract
        settled()

    def forget(self, target: Target, request_id: str) -> None:
        """Do nothing, since nothing was published."""

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Do nothing."""


class NoLetters:
    """Dead letters that are only logged, since a stored one would contain a customer's text."""

    async def put(self, record: Record, error: ProtocolError) -> None:
        log.warning("shadow_dropped", origin=origin_of(record), reason=error.code)


@dataclass(slots=True, kw_only=True)
class Shadow:
    """Compares shadows' answers. `encode` returns the encoder of the version that answered a job."""

    producer: Producer
    topics: TopicNames
    encode: Callable[[Job], Callable[[str], Sequence[int]]]
    _publishing: Tasks = field(default_factory=lambda: Tasks(task_failed))

    def end(self, job: Job, done: ReplyDone, now: float) -> None:
        """Compare an ended answer, count the result and publish it."""
        if job.erased or job.order.request.answered is None:
            return
        seen = self.observe(job, done, now)
        told = seen.compared
        metrics.shadows.labels("unanswered" if told is None else "equal" if told.equal else "other").inc()
        if told is not None:
            metrics.shadow_same.observe(told.same_chars)
            metrics.shadow_unfounded.labels("live").inc(told.live_unfounded)
            metrics.shadow_unfounded.labels("shadow").inc(told.unfounded)
        log.info("shadowed", request_id=seen.response_id, status=done.status, reason=done.reason)
        if len(self._publishing) < _MOST_PUBLISHING:
            self._publishing.start(self._publish(seen))

    def observe(self, job: Job, done: ReplyDone, now: float) -> Observation:
        """Return how an answer ended, with a comparison if it has text in time."""
        order, sequence, live = job.order, job.sequence, job.order.request.answered
        assert live is not None
        failed, missed = done.status == "failed", done.reason in _TOO_LATE
        shown = sequence.shown_unix_ms
        told = None
        if done.output_text and not failed and not missed:
            by = Compared.of(self.encode(job), order.request.input, done.grounding)
            took_ms = now - sequence.arrived_unix_ms
            told = by.compare(live, done, total_ms=took_ms)
        return Observation(
            response_id=live.request_id,
            conversation=order.session.digest,
            lane=SHADOW,
            revision=job.answer.revision,
            epoch=order.request.epoch or 0,
            unix_ms=int(now + order.clock_ms),
            bucket=job.bucket,
            failed=failed,
            missed=missed,
            unsure=done.source in CLAIM_NOTHING,
            ttft_ms=None if shown is None else shown - sequence.arrived_unix_ms,
            compared=told,
        )

    async def _publish(self, seen: Observation) -> None:
        record = Outgoing(self.topics.observations, msgpack_encode(seen), partition=BROADCAST_PARTITION)
        try:
            await self.producer.enqueue(record)
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("observation_not_published", cause=str(error))

    async def stop(self) -> None:
        await self._publishing.drain(1.0)
