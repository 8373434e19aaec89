"""The autoscaler: reads what is asked and who is there, decides each second, and publishes what is wanted.

Several may run for a pool. The leader is the member of the pool's group that has the one partition of `chat.demand`;
the others read along. A new leader takes over what was wanted, and the forecast's history, from `chat.scaling`.
Ages and waits are measured by the process's own time, which setting a clock never moves; records and the calendar have
the wall clock's.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from ops.operate.leader import Leadership
from ops.scaling.autoscale.basis import Basis
from ops.scaling.autoscale.capacity import Capacity
from ops.scaling.autoscale.counts import MINUTE_MS
from ops.scaling.autoscale.evidence import Evidence
from ops.scaling.autoscale.expectation import Expectation
from ops.scaling.autoscale.hands import Hands
from ops.scaling.autoscale.policy import DemandScaler, Past, Sizing
from ops.scaling.autoscale.scaler import Seen, Wanted
from ops.scaling.autoscale.variants import Variants
from shared.errors import BrokerUnavailable, ProtocolError, SettingsError
from shared.kafka import Outgoing, PartitionReader, Producer, group_lag, scan
from shared.process.clock import correction_ms, monotonic_s, now_unix_ms, observe_wall_clock, wire_unix_ms
from shared.process.tasks import Tasks
from shared.records.log_readers import read_demand, read_reports, read_scaling
from shared.settings.kafka import KafkaSettings
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.wire.codec import decode_scaling, msgpack_encode
from shared.wire.reports import WorkerReport
from shared.wire.scaling import DemandReport, ScalingRecord
from shared.wire.topics import BROADCAST_PARTITION, in_lane

log: Final = get_logger()

_LAG_S: Final = 5.0
_BACKLOG: Final = 4  # requests by slot that a worker may have before more workers are wanted for them
_MEASURE_INTERVAL_S: Final = 300.0
_CARRIES_UNKNOWN: Final = 0.5  # the share of a worker's time that is used if no share keeps the goal

Measure = Callable[[Basis], Capacity]
"""Find what a worker carries, by what was observed; it takes seconds."""


@dataclass(slots=True, kw_only=True)
class Autoscaler:
    """`cold_start_ms` holds until a cold start was seen. `dry`: decides and logs, and publishes nothing."""

    kafka: KafkaSettings
    evidence: Evidence
    expectation: Expectation
    sizing: Sizing
    measure: Measure
    cold_start_ms: float
    hands: Hands
    dry: bool
    producer: Producer
    leadership: Leadership
    demand: PartitionReader
    reports: PartitionReader
    decisions: PartitionReader | None = None
    """The records of all autoscalers; None where the pool has no variants."""
    _scaler: DemandScaler | None = None
    _basis: Basis = field(default_factory=Basis)
    _measured_s: float = -math.inf
    _lag: int = 0
    _decided_s: float = -math.inf
    _outage: Availability = field(default_factory=lambda: Availability("autoscaler"))

    async def run(self, stop: asyncio.Event) -> None:
        """Decide while this member leads its group. Without Kafka the last decision stays valid."""
        tasks = Tasks()
        try:
            tasks.start(self._read_demand(), "demand")
            tasks.start(self._read_reports(), "reports")
            if self.decisions is not None:
                tasks.start(read_scaling(self.decisions, self._hear_decision), "decisions")
            tasks.start(self._watch_lag(), "lag")
            tasks.start(self._lead(), "lead")
            await tasks.run_until(stop)
        finally:
            await tasks.cancel()
            await self.leadership.stop()  # first: the next leader does not wait until local workers have drained
            await self.hands.close()
            for part in (self.demand, self.reports, self.decisions, self.producer):
                if part is not None:
                    await part.stop()

    # --- reading

    async def _read_demand(self) -> None:
        def hear(gateway_id: str, report: DemandReport | None) -> None:
            self.evidence.hear_gateway(gateway_id, report, now_unix_ms())

        await read_demand(self.demand, hear)

    async def _read_reports(self) -> None:
        def hear(worker_id: str, report: WorkerReport | None) -> None:
            now = now_unix_ms()
            if self.evidence.listens_unix_ms is None:
                self.evidence.listens_unix_ms = now
            self.evidence.hear_worker(worker_id, report, now)

        await read_reports(self.reports, hear)

    def _hear_decision(self, record: ScalingRecord) -> None:
        if self._variants is not None:
            self._variants.hear(record, now_unix_ms())

    async def _watch_lag(self) -> None:
        """Read the lag every few seconds; keep the last one while Kafka does not answer."""
        pool = self.evidence.pool
        topics = [self.kafka.topics.requests(bucket, pool.lane) for bucket in pool.buckets]
        while True:
            if self.reports.next_offset(BROADCAST_PARTITION) is not None and self.evidence.listens_unix_ms is None:
                self.evidence.listens_unix_ms = now_unix_ms()
            try:
                lag = await group_lag(self.kafka, in_lane(self.kafka.workers_group, pool.lane), topics)
                self._lag = sum(lag.values())
            except (BrokerUnavailable, TimeoutError, OSError):
                pass  # it is asked again
            await asyncio.sleep(_LAG_S)

    # --- deciding

    async def _lead(self) -> None:
        await self.producer.start()
        await self.leadership.act(self._turn, self._outage)

    async def _turn(self) -> None:
        """Stay in the group, and decide once a second if this member leads. Decide nothing during a rebalance."""
        leads = await self.leadership.leads()
        observe_wall_clock()
        if leads is False:
            self._scaler = None
            _show_nothing()
        elif leads:
            if self._scaler is None:
                self._scaler = await self._begin()
            if monotonic_s() - self._decided_s >= self._scaler.every_ms / 1_000:
                self._decided_s = monotonic_s()
                if self._has_changed():
                    await self._rebase(self._scaler)
                await self._decide(self._scaler)

    async def _begin(self) -> DemandScaler:
        """Take over from the last leader."""
        pool, topic = self.evidence.pool, self.kafka.topics.scaling
        found = [
            each.record.value
            async for each in scan(self.kafka, topic)
            if each.record.key == pool.name.encode() and each.record.value is not None
        ]
        records = sorted(_decoded(found, wire_unix_ms()), key=lambda record: record.unix_ms)
        if records:
            self.evidence.service_ms = {**records[-1].service_ms, **self.evidence.service_ms}
        await asyncio.to_thread(self.expectation.replay, records, self._horizon_ms)
        past = Past.of(records, ahead_ms=correction_ms())
        log.info("leads", pool=pool.name, records=len(records), wanted=past.wanted)
        return await self._size(past)

    def _has_changed(self) -> bool:
        """Return whether the workers or customers differ from those of the last simulation. The first laws that workers
        report are simulated immediately, later ones after a while."""
        basis, first = self.evidence.basis(now_unix_ms()), self._basis.law is None
        due = first or monotonic_s() - self._measured_s >= _MEASURE_INTERVAL_S
        return due and basis.law is not None and basis.differs(self._basis)

    async def _rebase(self, scaler: DemandScaler) -> None:
        capacity = await self._measure()
        scaler.rebase(self._sizing(capacity), capacity.in_time)
        await self._bound(scaler)

    async def _size(self, past: Past) -> DemandScaler:
        """Return a scaler by what a worker carries; until a worker has reported its law, a measured CPU's counts."""
        capacity = await self._measure()
        scaler = DemandScaler(self._sizing(capacity), capacity.in_time, past)
        await self._bound(scaler)
        return scaler

    async def _measure(self) -> Capacity:
        self._basis, self._measured_s = self.evidence.basis(now_unix_ms()), monotonic_s()
        try:
            capacity = _usable(await asyncio.to_thread(self.measure, self._basis))
        except SettingsError as error:  # by the law that workers report no load keeps the goal
            log.warning("goal_unreachable", cause=str(error), action=f"workers count as full at {_CARRIES_UNKNOWN:g}")
            capacity = Capacity.given(_CARRIES_UNKNOWN, self.sizing.attainment)
        log.info("carries", pool=self.evidence.pool.name, carries=round(capacity.carries, 3))
        return capacity

    def _sizing(self, capacity: Capacity) -> Sizing:
        backlog = _BACKLOG * self._basis.slots or self.sizing.backlog
        return msgspec.structs.replace(self.sizing, carries=capacity.carries, backlog=backlog)

    async def _bound(self, scaler: DemandScaler) -> None:
        """Bound the size by the partitions that are left by cheaper pools: they may have become more."""
        pool, topics = self.evidence.pool, self.kafka.topics
        partitions = [await self.producer.num_partitions(topics.requests(bucket, pool.lane)) for bucket in pool.buckets]
        left = max(partitions) - (self._variants.workers_before(now_unix_ms()) if self._variants else 0)
        scaler.sizing = msgspec.structs.replace(scaler.sizing, most=min(self.sizing.most, max(left, 0)))

    async def _decide(self, scaler: DemandScaler) -> None:
        now = now_unix_ms()
        live = self.evidence.workers(now)
        expected, lag = self.expectation.expected, self._lag
        seen = self.evidence.seen(now, expected=expected, lag=lag, loading=self.hands.loading(live))
        if scaler.past.wanted is None and seen.found is None:
            return  # nothing is known yet, and nothing was wanted before
        before, trust, pool = scaler.past.wanted, scaler.trust.factor, self.evidence.pool.name
        wanted = scaler.decide(seen)
        if self._variants is not None and (contradiction := self._variants.contradiction(now)):
            wanted = replace(wanted, reason=f"{wanted.reason}; {contradiction}")
        if scaler.trust.factor != trust:
            log.info("trust", pool=pool, factor=round(scaler.trust.factor, 3), futile=scaler.trust.futile)
        changed = wanted.workers != before
        if changed:
            self.evidence.change(before if before is not None else wanted.workers, wanted.workers, now)
            log.info("wanted", pool=pool, workers=wanted.workers, before=before, reason=wanted.reason)
        minute = self.expectation.end_minute(wire_unix_ms(), seen.asked, self._horizon_ms)
        if minute:
            await self._bound(scaler)
        if self.dry:
            return
        self._show(scaler, seen, wanted)
        if changed or minute:
            await self._write(scaler, seen, wanted, changed=changed)
        await self.hands.size(wanted.workers, live)

    @property
    def _variants(self) -> Variants | None:
        return self.evidence.variants

    @property
    def _horizon_ms(self) -> float:
        """Return how long a worker takes to serve: the longest of those seen lately."""
        return max(self.evidence.cold_starts_ms, default=self.cold_start_ms)

    def _show(self, scaler: DemandScaler, seen: Seen, wanted: Wanted) -> None:
        pool, unknown = self.evidence.pool.name, math.nan
        metrics.wanted_workers.labels(pool).set(wanted.workers)
        metrics.worker_trust.labels(pool).set(scaler.trust.factor)
        metrics.found_workers.labels(pool).set(unknown if seen.found is None else seen.found)
        metrics.asked_by_pool.labels(pool).set(unknown if seen.asked is None else seen.asked)
        metrics.expected_by_pool.labels(pool).set(unknown if seen.expected is None else seen.expected)

    async def _write(self, scaler: DemandScaler, seen: Seen, wanted: Wanted, *, changed: bool) -> None:
        """Write a record. One that Kafka does not take is not written again: the next minute's says the same."""
        pool = self.evidence.pool.name
        record = ScalingRecord(
            pool=pool,
            unix_ms=int(wire_unix_ms()),
            kind="change" if changed else "minute",
            wanted=wanted.workers,
            found=seen.found or 0,
            reason=wanted.reason,
            asked=seen.asked,
            expected=seen.expected,
            carries=scaler.sizing.carries,
            trust=scaler.trust.factor,
            most=scaler.sizing.most,
            variants=() if self._variants is None else self._variants.named,
            service_ms=self.evidence.service_ms,
        )
        topic, value = self.kafka.topics.scaling, msgpack_encode(record)
        try:
            await self.producer.publish(Outgoing(topic, value, key=pool.encode(), partition=BROADCAST_PARTITION))
        except (BrokerUnavailable, ProtocolError) as error:
            self._outage.report_down(str(error), monotonic_s())


def _usable(capacity: Capacity) -> Capacity:
    """Return a capacity that work can be divided by. Raises `SettingsError` for another."""
    if not capacity.carries > 0.0:
        raise SettingsError("by the reported step times a worker carries nothing")
    return capacity


def _decoded(values: list[bytes], now_unix_ms: float) -> Iterator[ScalingRecord]:
    """Yield the records that can be read. A record from the future was written by a leader whose clock was wrong, and
    is ignored: otherwise no minute would count as new, and no shrink as due, before that time."""
    for value in values:
        try:
            record = decode_scaling(value)
        except ProtocolError:
            metrics.records_ignored.labels("scaling").inc()
            continue
        if record.unix_ms <= now_unix_ms + MINUTE_MS:
            yield record
        else:
            metrics.records_ignored.labels("scaling").inc()


def _show_nothing() -> None:
    """Remove the gauges of a member that does not lead: readers use the leader's."""
    gauges = (metrics.wanted_workers, metrics.found_workers, metrics.asked_by_pool, metrics.expected_by_pool)
    for gauge in (*gauges, metrics.worker_trust):
        gauge.clear()
