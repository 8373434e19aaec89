"""A waiting sequence, and what it is predicted to take."""

from dataclasses import dataclass, field

from workers.schedule.sequence import Sequence


@dataclass(slots=True, eq=False)
class Item:
    """`num_output` is what it is planned with, `likely_output` what it most likely writes, `least_output` what nearly
    every answer has, for those that take nobody's place; `num_held` tokens come before the one that its first text is
    shown with. `cost_ms` is its likely share of the machine in a full batch.
    Items stand in the order of their latest starts, equal ones in that of `order`."""

    sequence: Sequence
    prefill_ms: float
    num_held: int
    num_output: int
    likely_output: int
    least_output: int
    cost_ms: float
    first_token_unix_ms: int
    deadline_unix_ms: int
    latest_start_unix_ms: float
    order: int
    key: tuple[float, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.latest_start_unix_ms, self.order)

    def __lt__(self, other: "Item") -> bool:
        return self.key < other.key

    @property
    def dearness(self) -> float:
        """Cost for value."""
        return self.cost_ms / self.sequence.weight

    def slack_ms(self, now_unix_ms: float, step_ms: float) -> float:
        """Return how much later than now it could start, if steps took so long."""
        shown_ms = self.prefill_ms + self.num_held * step_ms
        whole_ms = self.prefill_ms + self.num_output * step_ms
        return min(self.first_token_unix_ms - shown_ms, self.deadline_unix_ms - whole_ms) - now_unix_ms

    def late(self, start_unix_ms: float, step_ms: float, margin: float, *, spare: bool) -> bool:
        """Return whether an answer that starts then ends too late, with all that it takes `margin` times as long as
        predicted. Where slots are to spare, only if even a short one does whose first token is shown: trying costs
        nobody anything, and is how lengths are learned."""
        num_held, num_output = (0, self.least_output) if spare else (self.num_held, self.num_output)
        first, slow_ms = start_unix_ms + self.prefill_ms * margin, step_ms * margin
        return (
            first + num_held * slow_ms > self.first_token_unix_ms
            or first + num_output * slow_ms > self.deadline_unix_ms
        )
