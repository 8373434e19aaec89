"""Batches that are formed once and run until their last answer ends: what is built most often.

`static` is "8 requests or 20 ms"; `sorted-budget` waits as long, sorts by length, and fills a batch by count and
tokens.
"""

from workers.schedule.policy import Load
from workers.schedule.sequence import Sequence

_WINDOW_MS = 20.0
_STATIC_ROWS = 8
_BUDGET_ROWS = 32


class Batches:
    """Opens a batch when enough wait or the oldest has waited long enough, then closes it: none joins later."""

    honours_deadlines = False
    run_to_completion = True

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

    def ended(self, sequence: Sequence, *, missed: bool) -> None:
        pass

    def give_up(self, now_unix_ms: float, load: Load) -> list[Sequence]:
        return []

    def take(self, now_unix_ms: float, load: Load) -> Sequence | None:
        if not self._batch and not load.running:
            self._open(now_unix_ms)
        return self._batch.pop(0) if self._batch else None

    def wake_unix_ms(self) -> float | None:
        oldest = next(iter(self._waiting.values()), None)
        return None if oldest is None else oldest[1] + _WINDOW_MS

    def outlook(self, now_unix_ms: float, load: Load) -> None:
        """It does not look ahead."""

    def urgency(self, sequence: Sequence) -> float:
        return 0.0

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
