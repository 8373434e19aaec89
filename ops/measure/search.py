"""Search the largest load that passes: increase it by a factor until one fails, then search in between. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class StepSearch:
    """Call `next_load`, then `passed` with the result, until `next_load` returns None. `best` is then the largest load
    that passed; 0 if none did."""

    start: int
    limit: int
    growth: float = 1.5
    resolution: float = 0.05
    best: int = 0
    lowest_failed: int | None = None
    _asked: int = field(default=0, init=False)

    def next_load(self) -> int | None:
        self._asked = self._choose()
        return self._asked if self._asked > self.best else None

    def passed(self, *, passed: bool) -> None:
        """Record whether the load returned by `next_load` has passed."""
        if passed:
            self.best = self._asked
        else:
            self.lowest_failed = self._asked

    def _choose(self) -> int:
        """Return the next load to try; `best` itself if the search is done."""
        if self.lowest_failed is None:
            grown = max(self.best + 1, int(self.best * self.growth)) if self.best else self.start
            return min(grown, self.limit)
        gap = self.lowest_failed - self.best
        if gap <= max(1, int(self.best * self.resolution)) or (not self.best and gap <= self.start // 8):
            return self.best
        return self.best + gap // 2
