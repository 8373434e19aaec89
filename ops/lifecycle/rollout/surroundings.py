"""The state of the system around a rollout, by what workers and gateways report. Pure.

Unknown is not healthy: a report that is missing, old, or of a gateway that follows another epoch freezes the rollout.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.policy import Health
from ops.lifecycle.versions.workers import SILENT_MS, LaneWorkers, lacking, lanes_of_a_rollout, refused
from shared.nouns import counted
from shared.versions.state import State
from shared.wire.fields import Revision
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.reports import WorkerReport
from shared.wire.scaling import DemandReport

_REQUESTS_A_SLOT: Final = 4
_FOLLOWS_MS: Final = 5_000.0
_FORGOTTEN_MS: Final = 60_000.0
_BUSY_MS: Final = 60_000.0
_LONGEST_GAP_MS: Final = 5_000.0


def wanted(plan: Plan) -> dict[Lane, Revision]:
    """Return the version that each worker of a rollout's lanes must report."""
    sides: dict[Lane, Revision] = {"canary": plan.version, "control": plan.champion}
    return {lane: revision for lane, revision in sides.items() if plan.control or lane == "canary"}


def _calm_ms(plan: Plan) -> float:
    """Return for how long a system must have been well, and its load known, before a promotion."""
    return min(plan.min_s * 1_000, _BUSY_MS)


@dataclass(slots=True)
class Surroundings:
    """`since_unix_ms` is when the workers' reports began to be read; None before. `waiting` are the requests that wait
    in each lane's topics, `faults` the reasons found at the last look; None before the first."""

    lanes: dict[Lane, LaneWorkers] = field(default_factory=lanes_of_a_rollout)
    since_unix_ms: float | None = None
    waiting: dict[Lane, int] = field(default_factory=dict)
    faults: list[str] | None = None
    _gateways: dict[str, tuple[DemandReport, float]] = field(default_factory=dict)
    _busy: float = 0.0
    _degraded_ms: float = 0.0
    _degraded_unix_ms: float = -math.inf
    _asked_unix_ms: float = math.inf

    def observe_worker(self, worker_id: str, report: WorkerReport | None, now_unix_ms: float) -> None:
        for workers in self.lanes.values():
            workers.observe(worker_id, report, now_unix_ms)

    def observe_gateway(self, gateway_id: str, report: DemandReport | None, now_unix_ms: float) -> None:
        self._gateways.pop(gateway_id, None)
        if report is not None:
            self._gateways[gateway_id] = report, now_unix_ms

    def health(self, plan: Plan, state: State, moved_unix_ms: float, now_unix_ms: float) -> Health:
        """Return the health by which a rollout is judged; `state` is in force, its newest move was made at
        `moved_unix_ms`. Each call measures the load and how long the system has been degraded: call it every few
        seconds during a rollout, on a standby too. A promotion needs a load known, and a system not degraded, for the
        step's least time, at most a minute: a worker that keeps crashing reports in between."""
        known_ms = 0.0 if self.since_unix_ms is None else now_unix_ms - self.since_unix_ms
        is_new, unknown = known_ms < SILENT_MS, self._unknown(plan, known_ms)
        overload = [] if is_new else lacking(self.lanes, wanted(plan), now_unix_ms)
        slots = {lane: workers.slots(now_unix_ms) for lane, workers in self.lanes.items()}
        for lane, waiting in self.waiting.items():
            if slots[lane] and waiting > _REQUESTS_A_SLOT * slots[lane]:
                overload.append(f"{waiting} requests of lane {lane} wait for {counted(slots[lane], 'slot')}")
        for gateway_id, (report, seen_unix_ms) in sorted(self._gateways.items()):
            silent_ms, moved_ms = now_unix_ms - seen_unix_ms, now_unix_ms - moved_unix_ms
            if silent_ms > _FORGOTTEN_MS:
                del self._gateways[gateway_id]  # its deployer is alerted
            elif silent_ms > SILENT_MS:
                unknown.append(f"gateway {gateway_id} is silent")
            elif report.rung is None:
                unknown.append(f"gateway {gateway_id} does not report its ladder and breakers; upgrade it")
            elif report.epoch != state.epoch and moved_ms > _FOLLOWS_MS:
                unknown.append(f"gateway {gateway_id} follows epoch {report.epoch}, not {state.epoch}")
            else:
                overload += [f"the breaker of lane {lane} at gateway {gateway_id} is open" for lane in report.breakers]
                if report.rung not in (CHAMPION, state.rung):  # where an operator holds the ladder is no overload
                    overload.append(f"the ladder of gateway {gateway_id} is at {report.rung}")
        unknown += [] if self._gateways else ["no gateway reports"]
        is_loading = state.loading.get(CHAMPION) == plan.version
        unknown += refused(self.lanes[CHAMPION], plan.version, now_unix_ms) if is_loading else []
        self._measure(is_degraded=bool(overload), now_unix_ms=now_unix_ms)
        calm_ms = now_unix_ms - self._degraded_unix_ms
        if not overload and calm_ms < _calm_ms(plan):
            unknown.append(f"the system was degraded {calm_ms / 1_000:.0f} s ago")
        loaded = self.lanes[CHAMPION].loaded(plan.version, now_unix_ms)
        return Health(
            degraded=overload,
            degraded_ms=self._degraded_ms,
            unknown=unknown,
            champions_loaded=not is_new and bool(loaded) and all(loaded.values()),
            slots=slots,
            busy=round(self._busy),
        )

    def _unknown(self, plan: Plan, known_ms: float) -> list[str]:
        """Return what is not known yet, or could not be looked at."""
        faults = ["the lag is not known yet"] if self.faults is None else self.faults
        if known_ms < SILENT_MS:
            return ["the workers' reports are not read yet", *faults]
        if known_ms < _calm_ms(plan):
            return ["this controller does not know the load of the last minute yet", *faults]
        return list(faults)

    def _measure(self, *, is_degraded: bool, now_unix_ms: float) -> None:
        """Measure the time that the system is degraded; healthy time takes half its length off, so a reason that flaps
        adds up. The peak of requests decays within minutes."""
        gap_ms = min(max(now_unix_ms - self._asked_unix_ms, 0.0), _LONGEST_GAP_MS)
        self._asked_unix_ms = now_unix_ms
        self._degraded_ms = max(0.0, self._degraded_ms + (gap_ms if is_degraded else -gap_ms / 2))
        self._degraded_unix_ms = now_unix_ms if is_degraded else self._degraded_unix_ms
        requests = sum(workers.requests(now_unix_ms) for workers in self.lanes.values())
        self._busy = max(float(requests), self._busy * (1 - gap_ms / _BUSY_MS))
