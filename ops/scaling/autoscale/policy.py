"""Decide the size of a pool by what is asked of it: growth immediately, a shrink when it is sure. Pure.

Two loads count. The mean of the last minutes has to keep the aim, so that the day keeps the goal, and the load of the
moment the goal less `spare`. A shrink is judged by slightly higher loads than a growth, so constant demand never
changes the size, wherever it lies.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from ops.scaling.autoscale.aim import Aim
from ops.scaling.autoscale.scaler import Seen, Wanted
from ops.scaling.autoscale.trust import BOUNDS, Curve, Trust
from shared.nouns import counted
from shared.wire.scaling import ScalingRecord

_TINY: Final = 1e-9
_WORTH: Final = 0.5
_LONGEST: Final = 4.0  # in stabilisation windows
_HALVINGS: Final = 30
_FULL_HOLD: Final = 0.125  # a shrink by a larger share of the pool saves more and is held for less
_LEAST_HOLD: Final = 1 / 3
_LONGEST_MS: Final = 60_000.0
_HYSTERESIS: Final = 0.08  # of a worker's capacity: the workers left after a shrink keep this much spare


class Sizing(Struct, frozen=True, kw_only=True):
    """The parameters from which a pool's size is decided.

    Attributes:
        carries: the load of one worker (machine seconds a second) at which `attainment` of it is answered in time, by
            simulation.
        attainment: the goal, kept in the mean of a day.
        spare: how much less than the goal may be answered in time at a moment.
        mean_ms: the length of the mean load by which the size is decided.
        least, most: the bounds of the size.
        stabilisation_ms: a shrink by half of the pool or more waits until fewer workers were enough for this long. A
            smaller shrink saves less and waits longer, up to four times as long.
        hold_ms: a growth is taken back (a shrink after a growth) at most once in this time; by a shrink of three
            eighths of the pool or more once in a third of it.
        backlog: uncommitted records for each worker above which more workers are wanted; 0: no such rule.
        standby: workers beyond the need, for a burst that cannot wait for a cold start. They serve like the others.
    """

    carries: float
    attainment: float = 0.96
    spare: float = 0.06
    mean_ms: float = 1_800_000.0
    least: int = 1
    most: int
    stabilisation_ms: float = 900_000.0
    hold_ms: float = 28_800_000.0
    backlog: int = 64
    standby: int = 0


@dataclass(slots=True, kw_only=True)
class Past:
    """The part of earlier decisions that binds the next: the last size, whether the last change was a growth, when one
    was last taken back, how far workers were trusted, and the loads that were seen, by time."""

    wanted: int | None = None
    grew: bool = False
    taken_back_unix_ms: float = -math.inf
    trust: float = 1.0
    loads: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[ScalingRecord], *, ahead_ms: float = 0.0) -> "Past":
        """Return what a pool's records say, oldest first; their clock is `ahead_ms` ahead of the scaler's."""
        past = cls()
        for record in records:
            unix_ms = record.unix_ms - ahead_ms
            past.change(record.wanted, unix_ms)
            past.trust = record.trust or past.trust
            if record.asked is not None:
                past.loads.append((unix_ms, record.asked))
        return past

    def change(self, wanted: int, now_unix_ms: float) -> None:
        if self.wanted is not None and wanted < self.wanted:
            if self.grew:
                self.taken_back_unix_ms = now_unix_ms
            self.grew = False
        elif self.wanted is not None and wanted > self.wanted:
            self.grew = True
        self.wanted = wanted


@dataclass(slots=True, frozen=True)
class _Need:
    """The workers that a moment needs. `load` is its work, None if unknown; `carriers` carry it, and fewer than
    `survivors` would miss the goal with it; `waiting` are wanted for the backlog."""

    known_ms: float
    load: float | None
    carriers: int
    survivors: int
    waiting: int

    @property
    def to_grow(self) -> int:
        return max(self.carriers, self.waiting)

    @property
    def to_keep(self) -> int:
        return max(self.carriers, self.survivors, self.waiting)


@dataclass(slots=True)
class _Mean:
    """The mean of the loads of the last `span_ms`, each as long as it held."""

    span_ms: float
    _loads: deque[tuple[float, float, float]] = field(default_factory=deque)  # (time, load, how long it held in ms)
    _sum: float = 0.0
    _held_ms: float = 0.0

    def add(self, now_ms: float, load: float) -> None:
        """Add the load of a moment. One after a gap counts no longer than a minute."""
        since_ms = now_ms - self._loads[-1][0] if self._loads else 1.0
        held_ms = min(max(since_ms, 1.0), _LONGEST_MS)
        self._loads.append((now_ms, load, held_ms))
        self._sum += load * held_ms
        self._held_ms += held_ms
        while self._loads[0][0] <= now_ms - self.span_ms and len(self._loads) > 1:
            _, old, old_ms = self._loads.popleft()
            self._sum -= old * old_ms
            self._held_ms -= old_ms

    @property
    def value(self) -> float:
        return max(self._sum / self._held_ms, 0.0) if self._loads else 0.0


@dataclass(slots=True)
class DemandScaler:
    """Replyline's own scaler. `in_time` is the simulated curve by which the survivors of a shrink are judged.

    Growth needs only known values, so it continues while a gateway or worker is silent. A shrink needs complete values
    over a whole window. Incomplete moments are not added to the window, and the wanted size does not change because of
    them.
    """

    sizing: Sizing
    in_time: Curve
    past: Past = field(default_factory=Past)
    name: str = "replyline"
    every_ms: float = 1_000.0
    _window: deque[_Need] = field(default_factory=deque)  # descending in to_keep: the first is the window's largest
    _known_ms: float = 0.0
    _last_known_unix_ms: float | None = None
    trust: Trust = field(init=False)
    _mean: _Mean = field(init=False)
    _aim: Aim = field(default_factory=Aim)
    _aimed: float = field(init=False)  # the load of a worker by which the day keeps the goal, and the most at a moment
    _low: float = field(init=False)

    def __post_init__(self) -> None:
        self.trust = Trust(self.in_time, self.sizing.attainment, min(max(self.past.trust, BOUNDS[0]), BOUNDS[1]))
        self._mean = _Mean(self.sizing.mean_ms)
        for unix_ms, asked in self.past.loads:
            self._mean.add(unix_ms, asked)
            self._aim.add(unix_ms, asked)
        self._take_aim()

    def rebase(self, sizing: Sizing, in_time: Curve) -> None:
        """Take what a new simulation says of a worker; what was decided and seen so far stays."""
        self.sizing, self.in_time = sizing, in_time
        self.trust.rebase(in_time)
        self._take_aim()

    def decide(self, seen: Seen) -> Wanted:
        """Return the wanted size and why."""
        now = seen.now_unix_ms
        if self.past.wanted is None:
            self.past.wanted = self._bounded(seen.found if seen.found is not None else self.sizing.least)
        before = self.past.wanted
        self._learn(seen)
        need = self._need(seen)
        self._remember(need, seen)
        size, why = self._size(need, seen)
        size = self._bounded(size)
        if size != before:
            self.past.change(size, now)
        return Wanted(workers=size, reason=f"{size} wanted: {why}{_absent(size, seen)}")

    def _size(self, need: _Need, seen: Seen) -> tuple[int, str]:
        before = self.past.wanted or 0
        if need.to_grow > before:
            why = (
                _say_backlog(seen, self.sizing)
                if need.waiting > need.carriers
                else _say_load(seen, self._mean.value, self.sizing, self._carries)
            )
            return need.to_grow, why + _say_bound(need.to_grow, self.sizing)
        if (silence := _silence(seen)) is not None:
            return before, f"{silence}, so that the last decision stands"
        recent = next(each for each in self._window if each.known_ms >= self._known_ms - self.sizing.stabilisation_ms)
        if (would_do := self._bounded(recent.to_keep)) >= before:
            return before, self._say_kept(recent, before)
        largest = self._lasting(before)
        if largest is None:
            waits_s = self._waits_ms(before, would_do) / 1_000
            return before, f"{would_do} would do, a shrink by {before - would_do} of {before} waits for {waits_s:.0f} s"
        since_ms = seen.now_unix_ms - self.past.taken_back_unix_ms
        hold_ms = self._hold_ms(before, self._bounded(largest.to_keep))
        if self.past.grew and since_ms < hold_ms:
            ago = f"{since_ms / 1_000:.0f} s ago, less than {hold_ms / 1_000:.0f} s"
            return before, f"{self._bounded(largest.to_keep)} would do, but a growth was taken back {ago}"
        share = self.trust.share((largest.load or 0.0) / max(1, largest.to_keep))
        return largest.to_keep, f"{_say_window(largest, self.sizing)}, and {share:.3f} of it stay in time"

    def _lasting(self, before: int) -> _Need | None:
        """Return the need that fewer than `before` workers have met for as long as such a shrink waits."""
        earlier_ms: float | None = None
        for each in self._window:
            size = self._bounded(each.to_keep)
            waits_ms = self._waits_ms(before, size)
            lasted = self._known_ms >= waits_ms if earlier_ms is None else self._known_ms - earlier_ms > waits_ms
            if size < before and lasted:
                return each
            earlier_ms = each.known_ms
        return None

    def _waits_ms(self, before: int, size: int) -> float:
        """Return how long fewer must do before a shrink to `size`."""
        share = max(before - size, 0) / max(before, 1)
        return self.sizing.stabilisation_ms * min(max(1.0, _WORTH / max(share, _TINY)), _LONGEST)

    def _hold_ms(self, before: int, size: int) -> float:
        """Return how long after the last growth that was taken back this shrink may take one back."""
        share = max(before - size, 0) / max(before, 1)
        return self.sizing.hold_ms * min(max(_FULL_HOLD / max(share, _TINY), _LEAST_HOLD), 1.0)

    @property
    def _carries(self) -> float:
        """Return the load of a worker by which the goal is kept, by its simulation and by what was measured."""
        return self._aimed * self.trust.factor

    @property
    def _most(self) -> float:
        """Return the most load of a worker at a moment."""
        return self._low * self.trust.factor

    def _take_aim(self) -> None:
        goal, factor = self.sizing.attainment, self.trust.factor
        self._low = max(self._most_load(goal - self.sizing.spare), self.sizing.carries)
        low, high = self.sizing.carries * factor, self._low * factor
        self._aimed = self._aim.load(self.trust.share, goal, low, high, self.sizing.most, _HYSTERESIS) / factor

    def _learn(self, seen: Seen) -> None:
        """Correct the trust by what the found workers have answered in time, and note it for the next leader."""
        if _silence(seen) is None and seen.asked is not None and seen.found:
            served = seen.asked if seen.served is None else seen.served
            self.trust.note(served, seen.found, seen.judged, seen.in_time, seen.now_unix_ms)
            self.past.trust = self.trust.factor

    def _most_load(self, share: float) -> float:
        """Return the most load at which a worker answers that share in time."""
        low, high = 0.0, 4.0 * self.sizing.carries
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.in_time(middle) >= share else (low, middle)
        return high

    def _need(self, seen: Seen) -> _Need:
        load = _load(seen)
        waiting = self._waiting(seen)
        if load is None:
            return _Need(self._known_ms, None, 0, 0, waiting)
        self._mean.add(seen.now_unix_ms, seen.asked or 0.0)
        if self._aim.add(seen.now_unix_ms, seen.asked or 0.0):
            self._take_aim()
        mean, standby = max(self._mean.value, seen.expected or 0.0), self.sizing.standby
        workers = max(load / self._most, mean / self._carries)
        carriers, survivors = math.ceil(workers - _TINY), math.ceil(workers / (1 - _HYSTERESIS) - _TINY)
        return _Need(self._known_ms, load, carriers + standby, survivors + standby, waiting)

    def _waiting(self, seen: Seen) -> int:
        """Return the workers that the backlog needs, at most twice the workers found: more are wanted once the new ones
        are found."""
        records = max(seen.lag, seen.waiting)
        if not self.sizing.backlog or not records:
            return 0
        return min(math.ceil(records / self.sizing.backlog), 2 * max(seen.found or 0, 1))

    def _remember(self, need: _Need, seen: Seen) -> None:
        """Add a moment with complete values to the window. The window's clock stops while values are missing."""
        if _silence(seen) is not None:
            self._last_known_unix_ms = None
            return
        if self._last_known_unix_ms is not None:
            self._known_ms += max(0.0, seen.now_unix_ms - self._last_known_unix_ms)
        self._last_known_unix_ms = seen.now_unix_ms
        while self._window and self._window[-1].to_keep <= need.to_keep:
            self._window.pop()
        self._window.append(_Need(self._known_ms, need.load, need.carriers, need.survivors, need.waiting))
        while self._window[0].known_ms < self._known_ms - self.sizing.stabilisation_ms * _LONGEST:
            self._window.popleft()

    def _bounded(self, size: int) -> int:
        return min(max(size, self.sizing.least), self.sizing.most)

    def _say_kept(self, largest: _Need, size: int) -> str:
        if largest.to_keep < size:
            bound = f"{self.sizing.least} is the least"
            if self.sizing.most < self.sizing.least:
                bound += f", but {self.sizing.most} the most that the topics' partitions allow"
            return f"{_say_window(largest, self.sizing)}, and {bound}"
        if largest.waiting >= max(largest.carriers, largest.survivors):
            return f"requests were behind within {self.sizing.stabilisation_ms / 1_000:.0f} s"
        if largest.carriers < size <= largest.survivors:
            loads = ((self._mean.value, self._carries), (largest.load or 0.0, self._most))
            each, most = max(
                ((load / max(size - 1, 1), most) for load, most in loads), key=lambda pair: pair[0] / pair[1]
            )
            margin = f"{each:.2f} of {most:.2f} carried each, less than {_HYSTERESIS:.0%} to spare"
            return f"{_say_window(largest, self.sizing)}, and {size - 1} would have {margin}"
        return f"{_say_window(largest, self.sizing)}, {self._carries:.2f} carried by each"


def _absent(size: int, seen: Seen) -> str:
    if seen.found is None or seen.found >= size:
        return ""
    return f"; {seen.found} of {size} found, {seen.loading} loading"


def _load(seen: Seen) -> float | None:
    if seen.asked is None:
        return None
    return max(seen.asked, seen.expected or 0.0)


def _silence(seen: Seen) -> str | None:
    """Return what keeps a shrink from being sure; None where everything is known."""
    if seen.asked is None:
        pool = seen.silent_pool
        return f"the autoscaler of {pool} reports no demand" if pool else "no gateway says what is asked"
    if seen.found is None:
        return "nobody says which workers there are"
    return None if seen.whole else "a gateway or worker is silent"


def _say_load(seen: Seen, mean: float, sizing: Sizing, carries: float) -> str:
    asked = "nothing" if seen.asked is None else f"{seen.asked:.2f}"
    expected = "" if seen.expected is None else f" and {seen.expected:.2f} expected"
    standby = f", {sizing.standby} to stand by" if sizing.standby else ""
    lately = f" ({mean:.2f} in the mean of {sizing.mean_ms / _LONGEST_MS:.0f} min)"
    return f"{asked} s of work a second asked{lately}{expected}, {carries:.2f} carried by each{standby}"


def _say_backlog(seen: Seen, sizing: Sizing) -> str:
    records = max(seen.lag, seen.waiting)
    behind, workers = counted(records, "request is", "requests are"), counted(seen.found or 0, "worker")
    return f"{behind} behind, {sizing.backlog} by each of {workers} are usual"


def _say_bound(size: int, sizing: Sizing) -> str:
    return f", but {sizing.most} is the most" if size > sizing.most else ""


def _say_window(largest: _Need, sizing: Sizing) -> str:
    window_s = sizing.stabilisation_ms / 1_000
    return f"at most {largest.load or 0.0:.2f} s of work a second asked or expected in {window_s:.0f} s"
