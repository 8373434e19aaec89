"""The choice that the scheduler leaves open: which sequence runs next, and which is given up.

`goodput` is what a worker runs; the simulator compares it with others, over the same slots, steps and engine. A policy
owns the queue of the waiting and decides by `now`, by what runs, and by predicted costs. Pure.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from workers.schedule.outlook import Outlook
from workers.schedule.sequence import Sequence
from workers.schedule.work import Work


class Costs(Protocol):
    """The cost of a step, in milliseconds. `context` is the number of tokens that the rows hold together."""

    def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float: ...

    def decode_ms(self, rows: int, context: int) -> float: ...

    def ms(self, work: Work) -> float: ...


@dataclass(slots=True)
class Load:
    """The load that runs, as a policy sees it. The scheduler keeps it up to date."""

    num_slots: int
    running: Collection[Sequence] = ()

    @property
    def free(self) -> int:
        return max(self.num_slots - len(self.running), 0)


class Policy(Protocol):
    """The waiting, in the order in which they are to be served."""

    def add(self, sequence: Sequence, now_unix_ms: float) -> None: ...

    def discard(self, sequence: Sequence) -> None:
        """Note that a sequence without a slot has left, admitted or not: cancelled, too late, its worker failed."""

    def ended(self, sequence: Sequence, *, missed: bool | None) -> None:
        """Note that a running sequence has left. `missed`: it was begun in vain, its deadline could not be met; None:
        its client left it before the promise was over, or another end that says nothing of the predictions."""

    def give_up(self, now_unix_ms: float, load: Load) -> list[Sequence]:
        """Return the items, waiting or running, that cannot be met any more or are not worth it. The scheduler discards
        them."""

    def admit(self, now_unix_ms: float, load: Load) -> Sequence | None:
        """Return the sequence that gets the next slot, which waits no longer; None: none, for now."""

    def wake_unix_ms(self) -> float | None:
        """Return when `admit` may return a sequence though nothing has happened since it returned None."""

    def outlook(self, now_unix_ms: float, load: Load) -> Outlook | None:
        """Return what a request that came now could expect; None of a policy that does not look ahead."""

    def slack_ms(self, rows: Collection[Sequence], now_unix_ms: float) -> float:
        """Return for how long running rows may pause without missing a deadline; infinity where none is at risk."""

    def urgency(self, sequence: Sequence) -> float:
        """Return the order of prompts being computed: least first; of equal ones the one that got its slot first."""
