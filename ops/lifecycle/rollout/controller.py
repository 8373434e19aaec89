"""The controller of rollouts: reads the registry and the observations, and writes what the policy decides.

Several may run. The leader is the member of the group `replyline-rollout` that has the observations' one partition. It
keeps nothing: all that it decides by is read again by the next. Two leaders for a moment do no harm, since of two moves
of one epoch the first counts.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from gateway.outbound.calls import Calls
from gateway.outbound.signed_webhook import SignedWebhook
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.health import Watch
from ops.lifecycle.rollout.notices import Notices
from ops.lifecycle.rollout.plan import GROUP
from ops.lifecycle.rollout.policy import Decision, Health
from ops.lifecycle.rollout.prometheus import Prometheus
from ops.lifecycle.rollout.records import Outcome, Rollout, judge, newest, record_of
from ops.lifecycle.rollout.tally import METRICS
from ops.operate.leader import Leadership
from shared.errors import ProtocolError
from shared.kafka import LogReader, PartitionReader, Producer, Record
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.sockets.listening import ListenAddress
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.versions.log import VersionsLog
from shared.versions.registry import Noted
from shared.versions.state import Move
from shared.wire.codec import decode_observation
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS

log: Final = get_logger()

_CLIENT: Final = "replyline-rollout"
_READ_MS: Final = 100
_MAX_RECORDS: Final = 2_000


@dataclass(slots=True)
class Controller:
    """Decides what the newest rollout does next."""

    kafka: KafkaSettings
    registry: VersionsLog
    producer: Producer
    leadership: Leadership
    observations: LogReader
    watch: Watch
    prometheus: Prometheus
    notices: Notices
    _rollout: str | None = None
    _evidence: Evidence | None = None
    _outage: Availability = field(default_factory=lambda: Availability("rollout"))

    @classmethod
    def of(cls, settings: Settings, gateways: Sequence[str] = ()) -> "Controller":
        kafka, names, calls = settings.kafka, settings.kafka.topics, Calls({})
        reports = PartitionReader(kafka, client_id=_CLIENT, topic=names.workers, unhurried=True)
        return cls(
            kafka,
            VersionsLog.of(kafka, client_id=_CLIENT, keeps_notes=True),
            Producer(kafka, client_id=_CLIENT),
            Leadership.of(kafka, client_id=_CLIENT, topic=names.observations, group=GROUP),
            LogReader(kafka, client_id=_CLIENT, topic=names.observations, partition=BROADCAST_PARTITION),
            Watch(kafka, gateways, calls, reports),
            Prometheus(calls, settings.rollout.prometheus_url),
            Notices(SignedWebhook(settings.rollout, calls, "replyline rollout status", metrics.rollout_notices)),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Lead while this member holds the partition, until `stop`. Without Kafka nothing changes."""
        tasks = Tasks()
        try:
            tasks.start(self._lead(), "lead")
            tasks.start(self.watch.follow(), "reports")
            tasks.start(self.watch.follow_gateways(), "gateways")
            tasks.start(self.watch.look(), "health")
            tasks.start(self.prometheus.follow(), "prometheus")
            await tasks.run_until(stop)
        finally:
            await tasks.cancel()
            await self.notices.stand_by()
            await self.notices.webhook.calls.close()
            for part in (self.leadership, self.watch.reports, self.observations, self.registry, self.producer):
                await part.stop()

    async def _lead(self) -> None:
        await self.producer.start()
        await self.observations.start()
        await self.registry.start()
        await self.leadership.act(self._turn, self._outage)

    async def _turn(self) -> None:
        """Stay in the group, and decide once if this member leads. A standby measures the health too: a leader that
        begins in a lull must know the load before it, and how long the system has been degraded."""
        leads = await self.leadership.leads()
        metrics.rollout_leads.set(bool(leads))
        if leads is False:
            _show_nothing()
            await self.notices.stand_by()
        await self.registry.catch_up()
        self.registry.report()
        rollout = newest(self.registry.registry)
        active = rollout if rollout is not None and rollout.ended is None else None
        while leads and self.notices.taken:
            await self.registry.append(self.producer, self.kafka.topics.versions, self.notices.taken[0])
            self.notices.taken.pop(0)
        if leads and active is not None:
            evidence = await self._fold(active)
            await self._decide(active, evidence)
            return
        self._rollout = None
        if leads:
            _show_state(None)
            self.notices.observe(rollout)
        elif active is not None:
            self._health(active)

    async def _fold(self, rollout: Rollout) -> Evidence:
        """Return the evidence of all observations so far; a new leader reads them from the rollout's start."""
        if self._rollout != rollout.id or self._evidence is None:
            self._rollout, self._evidence = rollout.id, Evidence(rollout.plan)
            self.observations.seek(rollout.plan.offset)
        end = await self.observations.end()
        while await self.observations.next_offset() < end:
            fold(self._evidence, await self.observations.read(timeout_ms=_READ_MS, max_records=_MAX_RECORDS))
        return self._evidence

    def _health(self, rollout: Rollout) -> Health:
        """Measure the system around a rollout."""
        registry = self.registry.registry
        moved_unix_ms, state = registry.moves[-1].unix_ms if registry.moves else 0, registry.state_at(wire_unix_ms())
        health = self.watch.around.health(rollout.plan, state, moved_unix_ms, now_unix_ms())
        return self.prometheus.bounded(health, rollout.plan)

    async def _decide(self, rollout: Rollout, evidence: Evidence) -> None:
        registry, now, numbers = self.registry.registry, round(wire_unix_ms()), evidence.numbers()
        health = self._health(rollout)
        numbers |= {"own": own} if isinstance(own := self.prometheus.value, float) else {}
        decision = judge(rollout, registry, evidence, health, now)
        record = record_of(decision, rollout, registry, numbers, now)
        _show_evidence(numbers)
        _show_state(rollout, decision)
        if rollout.rules(registry.state_at(now)) and registry.blocked is None:
            metrics.rollout_decisions.inc()
        if record is not None:
            counts = await self.registry.append(self.producer, self.kafka.topics.versions, record)
            _tell(rollout, record, counts=counts)
        self.notices.observe(rollout, is_frozen=decision.kind == "freeze")


def fold(evidence: Evidence, records: list[Record]) -> None:
    """Add what the records say; one that is no observation is counted and passed over."""
    for record in records:
        try:
            evidence.add(decode_observation(record.value))
        except ProtocolError:
            metrics.records_ignored.labels("observation").inc()


def _tell(rollout: Rollout, record: Move | Noted, *, counts: bool) -> None:
    kind = record.kind if isinstance(record, Noted) else "move"
    log.info("rollout", rollout=rollout.id, kind=kind, reason=record.reason, counts=counts)
    if isinstance(record, Noted) and record.kind == "ended":
        outcome: Outcome = rollout.outcome
        metrics.rollouts.labels(outcome).inc()


def _show_evidence(numbers: dict[str, float]) -> None:
    metrics.rollout_e_value.labels("all").set(numbers["e"])
    for metric in METRICS:
        metrics.rollout_e_value.labels(metric).set(numbers[f"e_{metric}"])


def _show_state(rollout: Rollout | None, decision: Decision | None = None) -> None:
    """Show what was decided just now: the notes in the log may be older."""
    shown = "none" if decision is None or decision.kind == "ended" else decision.kind
    state: metrics.RolloutState
    for state in get_args(metrics.RolloutState):
        metrics.rollout_state.labels(state).set(state == (shown if shown in ("none", "hold", "freeze") else "wait"))
    rule = rollout.own_moves[-1].state.rule if rollout is not None and rollout.own_moves else None
    for bucket in BUCKETS:
        metrics.rollout_share.labels(bucket).set(rule.shares.get(bucket, rule.share) if rule is not None else 0.0)


def _show_nothing() -> None:
    """Clear the rollout's metrics: only the leader shows them."""
    for gauge in (metrics.rollout_e_value, metrics.rollout_share, metrics.rollout_state):
        gauge.clear()


async def serve(settings: Settings, gateways: Sequence[str], address: ListenAddress, stop: asyncio.Event) -> None:
    """Run a controller with its page of metrics until `stop`. Raises `ListenError`."""
    controller = Controller.of(settings, gateways)
    async with controller.leadership.status(address):
        await controller.run(stop)
