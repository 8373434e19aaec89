"""Tell what admission changes: a line of the log for each change, and the metrics of what stands."""

from dataclasses import dataclass, field
from typing import Final

from gateway.admission.breaker import BreakerState
from gateway.admission.ladder import RUNGS, Ladder
from gateway.admission.lanes import LaneAdmissions
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.versions.state import Rung
from shared.wire.lanes import CHAMPION, Lane

log = get_logger()

_STATE_NUMBERS: Final = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


@dataclass(slots=True)
class AdmissionLog:
    """The last that was told of the ladder and of the breakers."""

    admissions: LaneAdmissions
    ladder: Ladder
    _rung: Rung = CHAMPION
    _breakers: dict[Lane, BreakerState] = field(default_factory=dict)
    _shut: dict[str, BreakerState] = field(default_factory=dict)

    def tell_rung(self) -> None:
        """Log a change of the rung that requests begin on, in one line."""
        rung = self.ladder.rung
        if rung is not self._rung:
            log.warning("rung", rung=rung, before=self._rung, held=self.ladder.hold is not None)
            self._rung = rung
            metrics.rung.set(RUNGS.index(rung))

    def tell_breakers(self) -> None:
        """Log a change of a lane's common breaker, in one line."""
        for lane, admission in self.admissions:
            breaker = admission.breaker
            if breaker.state is not self._breakers.get(lane, BreakerState.CLOSED):
                self._breakers[lane] = breaker.state
                self._set_breaker()
                log.warning("breaker", lane=lane, state=breaker.state.value, words=breaker.words, late=breaker.late)

    def tell_worker_breakers(self) -> None:
        """Log each worker whose breaker has changed, in one line."""
        shut = self.admissions.shut()
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
