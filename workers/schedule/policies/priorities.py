"""One number decides: the deadline (EDF), or the length (SJF). What cannot be met even alone is given up."""

import heapq
from collections.abc import Callable
from itertools import count

from workers.schedule.policies.hopeless import Hopeless
from workers.schedule.policy import Costs, Load
from workers.schedule.sequence import Phase, Sequence

Rank = Callable[[Sequence], float]


class ByRank:
    """Least rank first, then first come."""

    honours_deadlines = True
    run_to_completion = False

    def __init__(self, costs: Costs, rank: Rank) -> None:
        self._rank = rank
        self._hopeless = Hopeless(costs)
        self._heap: list[tuple[float, int, Sequence]] = []
        self._order = count()

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        heapq.heappush(self._heap, (self._rank(sequence), next(self._order), sequence))
        self._hopeless.add(sequence)

    def discard(self, sequence: Sequence) -> None:
        """It is passed over when its turn comes."""

    def ended(self, sequence: Sequence, *, missed: bool) -> None:
        pass

    def give_up(self, now_unix_ms: float, load: Load) -> list[Sequence]:
        return self._hopeless.now(now_unix_ms)

    def take(self, now_unix_ms: float, load: Load) -> Sequence | None:
        while self._heap:
            _, _, sequence = heapq.heappop(self._heap)
            if sequence.phase is Phase.WAITING:
                return sequence
        return None

    def wake_unix_ms(self) -> float | None:
        return None

    def outlook(self, now_unix_ms: float, load: Load) -> None:
        """It does not look ahead."""

    def urgency(self, sequence: Sequence) -> float:
        return self._rank(sequence)


def by_deadline(sequence: Sequence) -> float:
    return float(sequence.deadline.deadline_unix_ms)


def by_cost(costs: Costs, num_slots: int) -> Rank:
    """The machine time that a sequence takes in a full batch."""

    def rank(sequence: Sequence) -> float:
        num_prompt = len(sequence.prompt_ids)
        share_ms = costs.decode_ms(num_slots, num_slots * num_prompt) / num_slots
        return costs.prefill_ms(num_prompt) + sequence.expected_output_tokens * share_ms

    return rank
