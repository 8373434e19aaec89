"""Count, as metrics, which destination each question got, and log one line when the ladder changes its level or a
circuit breaker opens or closes."""

from dataclasses import dataclass, field
from typing import Final

from gateway.destination.breaker import BreakerState
from gateway.destination.destination import Destination, Fallback
from gateway.destination.ladder import RUNGS, Ladder
from gateway.destination.lanes import LaneAdmissions
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.versions.registry import Registry
from shared.versions.state import Rung
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.outcome import Response

log = get_logger()

_OTHER: Final = "other"
_NONE: Final = "none"
_STATE_NUMBERS: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


@dataclass(slots=True)
class Report:
    """Owned by the gateway's event loop. Remembers the rung and the breakers that were logged last."""

    registry: Registry
    admissions: LaneAdmissions
    ladder: Ladder
    _rung: Rung = CHAMPION
    _breakers: dict[Lane, BreakerState] = field(default_factory=dict)
    _shut: dict[str, BreakerState] = field(default_factory=dict)

    # --- questions

    def count_asked(self, wanted: Destination) -> None:
        """Count a question for the lane that it is meant for, whether its workers get it or not."""
        work_ms = self.admissions.demand.ask(wanted)
        metrics.asked.labels(wanted.bucket).inc()
        metrics.asked_work.labels(wanted.bucket).inc(work_ms / 1_000)

    def count_decided(self, wanted: Destination, where: Destination | Fallback) -> None:
        """Count a decision, and the question that workers get. If another lane gets it, count it there as well."""
        if wanted.claimed.why is not None:
            metrics.placed.labels(wanted.claimed.why).inc()
        if isinstance(where, Fallback) or where.lane != wanted.lane:
            self.admissions.demand.turn_away(wanted)
        if isinstance(where, Destination):
            if where.lane != wanted.lane:
                self.count_passed_on(wanted)
                self.count_asked(where)
            self.count_sent(where)
        self.log_breakers()
        self.log_rung()

    def count_passed_on(self, given_up: Destination) -> None:
        """Count a question that a lane's workers have no time for, and that another lane answers in their place."""
        self.admissions.demand.judge(given_up, in_time=False)

    def count_sent(self, to: Destination) -> None:
        """Count a question that the workers get."""
        metrics.lane_requests.labels(to.lane, self._label(to.revision)).inc()

    def count_answer(self, to: Destination, response: Response) -> None:
        """Count an answer by the lane that its question was sent to, and the version that wrote it."""
        metrics.lane_answers.labels(to.lane, self._label(response.revision), response.status).inc()

    def _label(self, revision: str | None) -> str:
        """Return a version's name as a label. All versions unknown to the registry share one label, because their
        number is unbounded."""
        if revision is None:
            return _NONE
        return revision if revision in self.registry.versions else _OTHER

    # --- the ladder and the breakers

    def log_rung(self) -> None:
        """Log a change of the rung that requests begin on."""
        rung = self.ladder.rung
        if rung is not self._rung:
            log.warning("rung", rung=rung, before=self._rung, held=self.ladder.hold is not None)
            self._rung = rung
            metrics.rung.set(RUNGS.index(rung))

    def log_breakers(self) -> None:
        """Log changes of the breakers that are common to all workers of a lane."""
        for lane, admission in self.admissions.known.items():
            breaker = admission.breaker
            if breaker.state is not self._breakers.get(lane, BreakerState.CLOSED):
                self._breakers[lane] = breaker.state
                self._set_breaker()
                log.warning("breaker", lane=lane, state=breaker.state.value, words=breaker.words, late=breaker.late)

    def log_worker_breakers(self) -> None:
        """Log each worker whose breaker has changed."""
        shut = self.admissions.open_breakers()
        for name, breaker in shut.items():
            if self._shut.get(name) is not breaker.state:
                log.warning("breaker", worker=name, state=breaker.state.value, words=breaker.words, late=breaker.late)
        for name in self._shut.keys() - shut.keys():
            log.warning("breaker", worker=name, state=BreakerState.CLOSED.value)
        self._shut = {name: breaker.state for name, breaker in shut.items()}
        self._set_breaker()

    def _set_breaker(self) -> None:
        champions = _STATE_NUMBERS[self._breakers.get(CHAMPION, BreakerState.CLOSED)]
        metrics.guards.labels("breaker").set(max(champions, min(len(self._shut), 1)))
