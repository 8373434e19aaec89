"""In the order of arrival: what servers do that know no deadline (vLLM's, llama-server's order)."""

from workers.schedule.policies.hopeless import Hopeless
from workers.schedule.policy import Costs, Load
from workers.schedule.sequence import Sequence


class FirstCome:
    """First come, first served. With `costs` it gives up what cannot be met even alone; without, nothing."""

    run_to_completion = False

    def __init__(self, costs: Costs | None) -> None:
        self.honours_deadlines = costs is not None
        self._hopeless = Hopeless(costs) if costs is not None else None
        self._waiting: dict[str, Sequence] = {}

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        self._waiting[sequence.request_id] = sequence
        if self._hopeless is not None:
            self._hopeless.add(sequence)

    def discard(self, sequence: Sequence) -> None:
        self._waiting.pop(sequence.request_id, None)

    def ended(self, sequence: Sequence, *, missed: bool) -> None:
        pass

    def give_up(self, now_unix_ms: float, load: Load) -> list[Sequence]:
        return self._hopeless.now(now_unix_ms) if self._hopeless is not None else []

    def take(self, now_unix_ms: float, load: Load) -> Sequence | None:
        if not self._waiting:
            return None
        return self._waiting.pop(next(iter(self._waiting)))

    def wake_unix_ms(self) -> float | None:
        return None

    def outlook(self, now_unix_ms: float, load: Load) -> None:
        """It does not look ahead."""

    def urgency(self, sequence: Sequence) -> float:
        return 0.0
