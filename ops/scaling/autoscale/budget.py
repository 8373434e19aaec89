"""Size each moment so that the goal is kept in the mean, and not in every moment alone. Pure.

Workers are whole, growth follows the highest of what is asked, and a shrink waits: sized for the goal, a pool answers
more than that. So the share that it is sized for falls after a minute that answered more, and rises after one that
answered less, by the curve that is known of its workers. It is the step of adaptive conformal inference (Gibbs and
Candès, NeurIPS 2021): in the long run the mean is the goal, whatever comes.
"""

from dataclasses import dataclass, field
from typing import Final

_MINUTE_MS: Final = 60_000.0
_PACE: Final = 0.05  # of what a minute answered too much: made up in about twenty of them
_MARGIN: Final = 0.004  # above the goal: a minute's bursts cost more than its mean says
_USUAL_MINUTES: Final = 240.0


@dataclass(slots=True)
class Budget:
    """`level` is the share in time that is sized for now: at most `spare` below the `goal`, and a little above it."""

    goal: float
    spare: float
    level: float = field(init=False)
    _noted_ms: float | None = None
    _usual: float | None = None

    def __post_init__(self) -> None:
        self.level = self.goal

    def note(self, asked: float, share: float, now_ms: float) -> bool:
        """Note what is asked and the share of it that is answered in time, once a minute; return whether the level
        moved. A minute counts as much as it asks."""
        if self._noted_ms is not None and 0 <= now_ms - self._noted_ms < _MINUTE_MS:
            return False
        first, self._noted_ms = self._noted_ms is None, now_ms
        usual = self._usual if self._usual is not None else asked
        self._usual = usual + (asked - usual) / _USUAL_MINUTES
        if first or not self._usual or not self.spare:
            return False
        before = self.level
        moved = before - _PACE * (share - self.goal - _MARGIN) * asked / self._usual
        self.level = min(max(moved, self.goal - self.spare), self.goal + _MARGIN, 1.0)
        return self.level != before
