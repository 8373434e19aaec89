"""Which of the waiting cannot be met even if they ran alone from now on."""

import heapq
from itertools import count

from workers.schedule.policy import Costs
from workers.schedule.sequence import Phase, Sequence


class Hopeless:
    """A heap by the latest start: the check costs nothing while nobody is past it."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._heap: list[tuple[float, int, Sequence]] = []
        self._order = count()

    def add(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, (latest_start_alone(sequence, self._costs), next(self._order), sequence))

    def now(self, now_unix_ms: float) -> list[Sequence]:
        """Those still waiting whose latest start has passed; each is named once."""
        found: list[Sequence] = []
        while self._heap and self._heap[0][0] < now_unix_ms:
            _, _, sequence = heapq.heappop(self._heap)
            if sequence.phase is Phase.WAITING:
                found.append(sequence)
        return found


def latest_start_alone(sequence: Sequence, costs: Costs) -> float:
    """When a sequence must start at the latest to be met with the whole engine for itself."""
    num_prompt = len(sequence.prompt_ids)
    prefill_ms = costs.prefill_ms(num_prompt)
    decode_ms = costs.decode_ms(1, num_prompt) * (sequence.expected_output_tokens - 1)
    deadline = sequence.deadline
    return min(deadline.first_token_unix_ms - prefill_ms, deadline.deadline_unix_ms - prefill_ms - decode_ms)
