"""The policies that ours is compared with: those of servers that know no deadline, and the orders from textbooks."""

import heapq
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count
from typing import Final

from workers.schedule.goodput import build_scheduler
from workers.schedule.lengths import OutputLengths
from workers.schedule.policy import Costs, Policy, RunningLoad
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.sequence import Phase, Sequence
from workers.schedule.window import Window

OURS: Final = "goodput"
POLICIES: Final = (OURS, "edf", "sjf", "fcfs-shed", "fcfs-continuous", "sorted-budget", "static")
# Ours with a light worker on the same cores, and the gateway's ladder before both.
LADDER: Final = "ladder"
# Ours with a fifth of the slots kept for long requests.
RESERVE: Final = "reserve"
_RESERVED: Final = 0.2
WHOLE_BATCHES: Final = frozenset({"sorted-budget", "static"})
"""Batches that keep their rows, ended ones too, until their last answer ends."""
IGNORES_DEADLINES: Final = WHOLE_BATCHES | {"fcfs-continuous"}

_WINDOW_MS: Final = 20.0
_STATIC_ROWS: Final = 8
_BUDGET_ROWS: Final = 32
_WHOLE_PROMPTS: Final = 2**31

Rank = Callable[[Sequence], float]


def scheduler_of(
    name: str, *, limits: SchedulerLimits, costs: Costs, lengths: OutputLengths, window: Window | None = None
) -> Scheduler:
    """Return the worker's scheduler under a policy of `POLICIES`, or `RESERVE`; the window is for ours alone."""
    if name in {OURS, RESERVE}:
        share = _RESERVED if name == RESERVE else 0.0
        return build_scheduler(limits=limits, costs=costs, lengths=lengths, window=window, long_share=share)
    if name in WHOLE_BATCHES:
        limits = replace(limits, prefill_chunk_tokens=_WHOLE_PROMPTS, decode_stall_ms=0.0)
    return Scheduler(limits, _rival(name, limits, costs), costs=costs, lengths=lengths)


def _rival(name: str, limits: SchedulerLimits, costs: Costs) -> Policy:
    slots = limits.num_slots
    makers: dict[str, Callable[[], Policy]] = {
        "edf": lambda: ByRank(costs, by_deadline),
        "sjf": lambda: ByRank(costs, by_cost(costs, slots)),
        "fcfs-shed": lambda: ByRank(costs, by_arrival),
        "fcfs-continuous": lambda: ByRank(None, by_arrival),
        "sorted-budget": lambda: Batches.sorted_budget(slots, limits.max_running_tokens),
        "static": lambda: Batches.static(slots),
    }
    return makers[name]()


class _Rival:
    """A policy of others: it neither looks ahead, nor waits, nor learns how a sequence ended."""

    def ended(self, sequence: Sequence, *, missed: bool | None) -> None:
        pass

    def wake_unix_ms(self) -> float | None:
        return None

    def outlook(self, now_unix_ms: float, load: RunningLoad) -> None:
        pass

    def slack_ms(self, rows: Collection[Sequence], now_unix_ms: float) -> float:
        return math.inf

    def urgency(self, sequence: Sequence) -> float:
        return 0.0


class Batches(_Rival):
    """`static` is "8 requests or 20 ms"; `sorted-budget` waits as long, sorts by length, and fills by count and tokens.

    Opens a batch when enough wait or the oldest has waited long enough, then closes it: none joins later."""

    def __init__(self, *, rows: int, by_length: bool, max_tokens: int | None) -> None:
        self._rows = rows
        self._by_length = by_length
        self._max_tokens = max_tokens
        self._waiting: dict[str, tuple[Sequence, float]] = {}
        self._batch: list[Sequence] = []

    @classmethod
    def static(cls, num_slots: int) -> "Batches":
        return cls(rows=min(_STATIC_ROWS, num_slots), by_length=False, max_tokens=None)

    @classmethod
    def sorted_budget(cls, num_slots: int, max_tokens: int) -> "Batches":
        return cls(rows=min(_BUDGET_ROWS, num_slots), by_length=True, max_tokens=max_tokens)

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        self._waiting[sequence.request_id] = (sequence, now_unix_ms)

    def discard(self, sequence: Sequence) -> None:
        self._waiting.pop(sequence.request_id, None)
        if sequence in self._batch:
            self._batch.remove(sequence)

    def give_up(self, now_unix_ms: float, load: RunningLoad) -> list[Sequence]:
        return []

    def admit(self, now_unix_ms: float, load: RunningLoad) -> Sequence | None:
        if not self._batch and not load.running:
            self._open(now_unix_ms)
        return self._batch.pop(0) if self._batch else None

    def wake_unix_ms(self) -> float | None:
        oldest = next(iter(self._waiting.values()), None)
        return None if oldest is None else oldest[1] + _WINDOW_MS

    def _open(self, now_unix_ms: float) -> None:
        wake = self.wake_unix_ms()
        if wake is None or (len(self._waiting) < self._rows and now_unix_ms < wake):
            return
        waiting = [sequence for sequence, _ in self._waiting.values()]
        if self._by_length:
            waiting.sort(key=lambda sequence: len(sequence.prompt_ids))
        tokens = 0
        for sequence in waiting[: self._rows]:
            tokens += len(sequence.prompt_ids) + sequence.max_output_tokens
            if self._batch and self._max_tokens is not None and tokens > self._max_tokens:
                break
            self._batch.append(sequence)
            del self._waiting[sequence.request_id]


class ByRank(_Rival):
    """Serves the lowest rank first, then the first to arrive. With `costs` it gives up requests that cannot be met even
    alone; without, it gives up no request."""

    def __init__(self, costs: Costs | None, rank: Rank) -> None:
        self._rank = rank
        self._hopeless = None if costs is None else Hopeless(costs)
        self._heap: list[tuple[float, int, Sequence]] = []
        self._order = count()

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        heapq.heappush(self._heap, (self._rank(sequence), next(self._order), sequence))
        if self._hopeless is not None:
            self._hopeless.add(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Discard an item: it is passed over when its turn comes."""

    def give_up(self, now_unix_ms: float, load: RunningLoad) -> list[Sequence]:
        return [] if self._hopeless is None else self._hopeless.now(now_unix_ms)

    def admit(self, now_unix_ms: float, load: RunningLoad) -> Sequence | None:
        while self._heap:
            _, _, sequence = heapq.heappop(self._heap)
            if sequence.phase is Phase.WAITING:
                return sequence
        return None

    def urgency(self, sequence: Sequence) -> float:
        return self._rank(sequence)


def by_arrival(_sequence: Sequence) -> float:
    return 0.0


def by_deadline(sequence: Sequence) -> float:
    return float(sequence.deadline.deadline_unix_ms)


def by_cost(costs: Costs, num_slots: int) -> Rank:
    """Return the machine time that a sequence takes in a full batch."""

    def rank(sequence: Sequence) -> float:
        num_prompt = len(sequence.prompt_ids)
        share_ms = costs.decode_ms(num_slots, num_slots * num_prompt) / num_slots
        return costs.prefill_ms(num_prompt) + sequence.expected_output_tokens * share_ms

    return rank


class Hopeless:
    """A heap by the latest start. The check costs nothing while no latest start has passed."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._heap: list[tuple[float, int, Sequence]] = []
        self._order = count()

    def add(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, (latest_start_alone(sequence, self._costs), next(self._order), sequence))

    def now(self, now_unix_ms: float) -> list[Sequence]:
        """Return the items still waiting whose latest start has passed; each is named once."""
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
