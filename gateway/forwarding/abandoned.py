"""Forward the requests in lanes without workers to the champion.

A gateway joins the consumer group of such a lane like a worker, so Kafka distributes the lane's partitions among the
gateways, and takes a partition from a worker that hangs only when its session has expired. The gateway leaves the group
when a worker of the lane reports.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gateway.destination.lanes import LaneAdmissions
from gateway.forwarding.forwarding import Copy, Forwarding
from shared.errors import BrokerUnavailable
from shared.kafka import Producer, Record, describe_topics, group_lag
from shared.process.clock import monotonic_s
from shared.process.tasks import Tasks
from shared.records.passed_on import champions_copy
from shared.settings import Settings
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.wire.lanes import PASSED_ON, Lane
from shared.wire.messages import ChatRequest
from shared.wire.topics import BUCKETS, in_lane

_LOOK_S: Final = 0.5
_ASK_S: Final = 5.0
_MOST_ASK_S: Final = 60.0
"""Kafka is asked about a lane after 5 s, then after 10 s and so on: no gateway sends to a lane without workers."""
_AWAY: Final = (BrokerUnavailable, TimeoutError, OSError)


@dataclass(slots=True, kw_only=True)
class AbandonedLanes:
    """Forwards the requests in lanes without workers. Kafka is not asked while every lane that was ever used has a
    worker. `_asked` is, by lane, when it is asked next, and the pause after that, in seconds."""

    settings: Settings
    producer: Producer
    admissions: LaneAdmissions
    source: str
    _joined: dict[Lane, Forwarding] = field(default_factory=dict, init=False)
    _asked: dict[Lane, tuple[float, float]] = field(default_factory=dict, init=False)

    async def watch(self, tasks: Tasks) -> None:
        """Watch the lanes until cancelled, and forward in `tasks`. Before the first check, wait until every living
        worker has reported."""
        await asyncio.sleep(self.settings.kafka.session_timeout_ms / 1_000)
        self.admissions.add_used(await self._with_topics())
        while True:
            await self._look(monotonic_s(), tasks)
            await asyncio.sleep(_LOOK_S)

    async def leave(self, tasks: Tasks) -> None:
        """Leave every group after the forwards in progress."""
        for lane in list(self._joined):
            await self._leave(lane, tasks)

    async def _look(self, now_s: float, tasks: Tasks) -> None:
        abandoned = self.admissions.abandoned()
        for lane in self._joined.keys() - abandoned:
            await self._leave(lane, tasks)
        for lane in self._asked.keys() - abandoned:
            del self._asked[lane]
        for lane in sorted(abandoned - self._joined.keys()):
            due_s, pause_s = self._asked.get(lane, (now_s, _ASK_S))
            if now_s < due_s:
                continue
            waits = await self._waits(lane)
            self._asked[lane] = now_s + pause_s, _ASK_S if waits is None else min(2 * pause_s, _MOST_ASK_S)
            if waits:
                await self._join(lane, tasks)

    async def _leave(self, lane: Lane, tasks: Tasks) -> None:
        await self._joined.pop(lane).leave(tasks)
        get_logger().info("lane_left", lane=lane)

    async def _join(self, lane: Lane, tasks: Tasks) -> None:
        get_logger().warning("lane_abandoned", lane=lane, action="its requests are forwarded to the champion")
        forwarding = self._joined[lane] = Forwarding(
            self.settings,
            self.producer,
            self.source,
            name=f"lane {lane}",
            topics=self._topics(lane),
            group=in_lane(self.settings.kafka.workers_group, lane),
            copy=partial(self._copy, lane),
        )
        await forwarding.start(tasks)

    async def _copy(self, lane: Lane, request: ChatRequest, record: Record) -> Copy:
        def count() -> None:
            metrics.passed_on.labels(lane).inc()
            get_logger().info("passed_on", request_id=request.id, lane=lane)

        return Copy(champions_copy(record, self.settings.kafka.topics), count)

    async def _with_topics(self) -> set[Lane]:
        """Return the lanes whose topics exist."""
        try:
            found = await describe_topics(self.settings.kafka)
        except _AWAY as error:
            get_logger().warning("lanes_unknown", cause=repr(error), action="only lanes with workers are watched")
            return set()
        return {lane for lane in PASSED_ON if found.keys() >= {*self._topics(lane)}}

    async def _waits(self, lane: Lane) -> bool | None:
        """Return whether the lane's group has uncommitted records; None if Kafka does not answer."""
        kafka = self.settings.kafka
        try:
            lag = await group_lag(kafka, in_lane(kafka.workers_group, lane), self._topics(lane))
        except _AWAY:
            return None
        return any(lag.values())

    def _topics(self, lane: Lane) -> list[str]:
        return [self.settings.kafka.topics.requests(bucket, lane) for bucket in BUCKETS]
