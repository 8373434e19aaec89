"""The choice that the scheduler leaves open: which sequence runs next, and which one is given up. Pure.

Workers use `goodput`; the simulator compares it with others over the same slots, steps and engine. A policy owns the
queue of waiting sequences, and decides by the time, the running sequences and predicted costs.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from workers.schedule.outlook import Outlook
from workers.schedule.sequence import Sequence
from workers.schedule.work import Work


class Costs(Protocol):
    """The cost of a step in milliseconds. `context` is the number of tokens that the rows hold together."""

    def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float: ...

    def decode_ms(self, rows: int, context: int) -> float: ...

    def ms(self, work: Work) -> float: ...


@dataclass(slots=True)
class RunningLoad:
    """The running sequences, for the policy. The scheduler updates it."""

    num_slots: int
    running: Collection[Sequence] = ()

    @property
    def free(self) -> int:
        return max(self.num_slots - len(self.running), 0)


class Policy(Protocol):
    """Owns the waiting sequences and decides their order."""

    def add(self, sequence: Sequence, now_unix_ms: float) -> None: ...

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence that has no slot, admitted or not: it was cancelled, is too late, or its worker failed."""

    def ended(self, sequence: Sequence, *, missed: bool | None) -> None:
        """Record that a running sequence has left.

        Args:
            sequence: the sequence.
            missed: whether it missed its deadline, so that it was begun in vain; None if its end says nothing about the
                predictions, for example because its client cancelled it in time.
        """

    def give_up(self, now_unix_ms: float, load: RunningLoad) -> list[Sequence]:
        """Return the sequences, waiting or running, that cannot meet their deadline or are not worth it.

        The scheduler then discards them.
        """

    def admit(self, now_unix_ms: float, load: RunningLoad) -> Sequence | None:
        """Return the sequence that gets the next slot and remove it from the queue; None for none now."""

    def wake_unix_ms(self) -> float | None:
        """Return when `admit` may return a sequence although nothing has happened since it returned None."""

    def outlook(self, now_unix_ms: float, load: RunningLoad) -> Outlook | None:
        """Return what a request that arrives now could expect; None if the policy does not look ahead."""

    def slack_ms(self, rows: Collection[Sequence], now_unix_ms: float) -> float:
        """Return how long running rows may pause without missing a deadline; infinity if none is at risk."""

    def urgency(self, sequence: Sequence) -> float:
        """Return the sort key of prompts being computed: lowest first, on a tie in the order of their slots."""
