"""Watch how long the step under way takes. The engine's thread begins and ends steps; any thread may ask."""

from dataclasses import dataclass, field
from typing import Final

from shared.process.clock import monotonic_s

_OVERDUE: Final = 0.1
"""A step that has taken this share of its limit says that the outlook before it is wrong."""


@dataclass(slots=True)
class StepWatch:
    """Use as a context manager around each step. `limit_s`: a longer step is taken for one that never ends."""

    limit_s: float
    _since_s: float | None = field(default=None, init=False)  # monotonic; None between steps

    def __enter__(self) -> None:
        self._since_s = monotonic_s()

    def __exit__(self, *_: object) -> None:
        self._since_s = None

    @property
    def overdue(self) -> bool:
        """Return whether the step takes much longer than steps do."""
        return self._passed_s >= self.limit_s * _OVERDUE

    @property
    def stuck(self) -> str | None:
        """Return the error message of a step that does not end; None while steps end."""
        passed_s = self._passed_s
        if passed_s < self.limit_s:
            return None
        return f"an engine step has not ended for {passed_s:.0f} s: this worker ends"

    @property
    def _passed_s(self) -> float:
        """Return the time since the step under way began."""
        since_s = self._since_s
        return 0.0 if since_s is None else monotonic_s() - since_s
