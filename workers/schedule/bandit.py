"""A contextual bandit that chooses windows: LinUCB (Li et al., arXiv 1003.0146) over one-hot contexts. Pure.

With one-hot contexts LinUCB's matrices are diagonal: for each cell of contexts and each action there is a number of
trials and a sum of rewards, and one trial of no reward to begin with. It has no randomness: the same rewards in one
order give the same table. It is trained in the simulator; a worker follows the table that came of it and changes
nothing. Whatever the table says, a window stays within its bounds (`workers/schedule/window.py`).
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from workers.schedule.window import Opening, Rule

SCHEMA_VERSION: Final = 1
SHARES: Final = (0.0, 0.1, 0.25, 0.5, 1.0)
"""The actions: shares of the window's bound."""

# Where one bin ends and the next begins.
_EXPECTED_ARRIVALS: Final = (0.5, 1.0, 2.0, 4.0)  # within the bound
_ROWS: Final = (2, 4)
_SLACKS: Final = (10.0, 40.0)  # in bounds
_FEWEST_TRIALS: Final = 50.0

_NotNegative = Annotated[float, Meta(ge=0)]


class Arm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one action gave in one cell: `reward` is the mean of so many trials, `error` its standard error."""

    trials: _NotNegative
    reward: float
    error: _NotNegative


class BanditTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By cell, an arm for each of `shares`. `trained_on` says on what, for who reads the file."""

    schema_version: int = SCHEMA_VERSION
    trained_on: str
    shares: tuple[float, ...]
    cells: dict[str, tuple[Arm, ...]]


def cell_of(opening: Opening) -> str:
    """The context, discretised: whether others run, arrivals expected, how many wait, slack."""
    bound_ms = opening.bound_ms
    expected = bisect_right(_EXPECTED_ARRIVALS, bound_ms / opening.gap_ms if opening.gap_ms > 0 else math.inf)
    rows = bisect_right(_ROWS, opening.rows)
    slack = bisect_right(_SLACKS, opening.slack_ms / bound_ms)
    return f"{'busy' if opening.busy else 'quiet'}-{expected}-{rows}-{slack}"


@dataclass(slots=True)
class _Cell:
    trials: list[float] = field(default_factory=lambda: [1.0] * len(SHARES))
    rewards: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))
    squares: list[float] = field(default_factory=lambda: [0.0] * len(SHARES))

    def arm(self, action: int) -> Arm:
        trials, reward = self.trials[action], self.rewards[action] / self.trials[action]
        variance = max(0.0, self.squares[action] / trials - reward**2)
        return Arm(trials=trials - 1, reward=round(reward, 6), error=round(math.sqrt(variance / trials), 6))


class Bandit:
    """`choose`, then `learn` what came of it, as much later as that takes."""

    def __init__(self, curiosity: float) -> None:
        self._curiosity = curiosity
        self._cells: dict[str, _Cell] = {}

    def choose(self, cell: str) -> int:
        """The action of the greatest upper confidence bound; of equal ones the shortest window.

        No window, which the others are compared with, is chosen as often as any until there are enough trials of it.
        A choice counts as a trial at once, so that many of them without a reward yet are spread over the actions.
        """
        known = self._cells.setdefault(cell, _Cell())
        if known.trials[0] < min(1 + _FEWEST_TRIALS, max(known.trials)):
            known.trials[0] += 1
            return 0
        bounds = [
            reward / trials + self._curiosity / math.sqrt(trials)
            for reward, trials in zip(known.rewards, known.trials, strict=True)
        ]
        action = bounds.index(max(bounds))
        known.trials[action] += 1
        return action

    def learn(self, cell: str, action: int, reward: float) -> None:
        """What came of a choice. Raises `KeyError` for a cell that nobody chose in."""
        known = self._cells[cell]
        known.rewards[action] += reward
        known.squares[action] += reward**2

    def table(self, trained_on: str) -> BanditTable:
        """What has been learned."""
        cells = {
            name: tuple(cell.arm(action) for action in range(len(SHARES))) for name, cell in sorted(self._cells.items())
        }
        return BanditTable(trained_on=trained_on, shares=SHARES, cells=cells)


def learned(table: BanditTable) -> Rule:
    """The action that paid best in the opening's cell; no window where none paid clearly better than none."""
    best = {name: _best(table.shares, arms) for name, arms in table.cells.items()}

    def rule(opening: Opening) -> float:
        return best.get(cell_of(opening), 0.0)

    return rule


def read_table() -> BanditTable:
    """The table that comes with the package."""
    text = files("workers.schedule").joinpath("window_table.json").read_bytes()
    return msgspec.json.decode(text, type=BanditTable)


def _best(shares: tuple[float, ...], arms: tuple[Arm, ...]) -> float:
    """Of the actions that, by their errors, are better than the first; else the first. Both must have been tried often
    enough: what little is known of either says nothing of the two."""
    least = arms[0].reward + arms[0].error if arms[0].trials >= _FEWEST_TRIALS else math.inf
    better = [
        (arm.reward, -share)
        for share, arm in zip(shares, arms, strict=True)
        if arm.trials >= _FEWEST_TRIALS and arm.reward - arm.error > least
    ]
    return -max(better)[1] if better else shares[0]
