"""The evidence by class of the traffic: all of it, by bucket, by language, by tenant. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.lifecycle.rollout.batches import Batches, variance_of
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.tally import METRICS, Metric, Side, Tally
from shared.wire.reports import Observation
from shared.wire.topics import BUCKETS

ALL: Final = "all"

# Most of alpha is for what can be detected soonest, and harms most.
_ALPHA_OF: Final[dict[Metric, float]] = {
    "failed": 0.1,  # is missed too
    "missed": 0.74,
    "slow": 0.05,
    "unsure": 0.04,
    "rating": 0.03,
    "cancelled": 0.02,
    "handed_over": 0.02,
}
_MOST_LANGUAGES: Final = 4
# So many that a tenant with 1 % of the answers is always judged by itself.
_MOST_TENANTS: Final = 100
_RARE: Final = 0.01
_UNCERTAIN: Final = 3
# Diverted questions that are too many of a side's, and the standard deviations by which the canary's are more.
_MOST_DIVERTED: Final = 0.1
_LEAST_DIVERTED: Final = 5
_DOUBTFUL: Final = 2.0
# It is looked at again and again, so that two would be exceeded by chance at some time.
_CERTAIN: Final = 3.0


@dataclass(slots=True)
class Class:
    """The tallies of one class, and the answers of each side. `uses` counts them too, for the most used to be kept.
    `asked` are the questions of each side by epoch, `diverted` those that its lane had no time for, `lost` these and
    those whose answer failed or missed its deadline; `batches` have the same by epoch, in their order."""

    name: str
    tallies: dict[Metric, Tally]
    answers: Counter[Side] = field(default_factory=Counter)
    uses: int = 0
    asked: Counter[tuple[Side, int]] = field(default_factory=Counter)
    diverted: Counter[tuple[Side, int]] = field(default_factory=Counter)
    lost: Counter[tuple[Side, int]] = field(default_factory=Counter)
    batches: defaultdict[int, Batches] = field(default_factory=lambda: defaultdict(Batches))

    def count(self, side: Side, epoch: int, *, diverted: bool = False, bad: bool = False) -> None:
        """Count a question."""
        self.asked[side, epoch] += 1
        self.diverted[side, epoch] += diverted
        self.lost[side, epoch] += diverted or bad
        self.batches[epoch].add(side, is_lost=diverted or bad)


@dataclass(slots=True)
class Kind:
    """The classes of one kind, at most `most` and one for the rest. `alpha_share` is the share of alpha of them all.

    Each class with more than 1/`most` of the answers has separate tallies (Misra and Gries, "Finding repeated
    elements", 1982). One that is rarer makes place for others, which continue its detectors."""

    plan: Plan
    prefix: str
    most: int
    alpha_share: float
    classes: dict[str, Class] = field(default_factory=dict)
    _unused: list[Class] = field(default_factory=list)

    def find(self, name: str) -> Class:
        """Return the class to count an answer in."""
        name, rest = self.prefix + name, self.prefix + "*"
        if name not in self.classes and len(self.classes) - (rest in self.classes) >= self.most:
            self._make_place(rest)
            name = rest
        if name not in self.classes:
            self.classes[name] = self.new(name)
        self.classes[name].uses += 1
        return self.classes[name]

    def _make_place(self, rest: str) -> None:
        for each in [each for each in self.classes.values() if each.name != rest]:
            each.uses -= 1
            if each.uses == 0:
                self._unused.append(self.classes.pop(each.name))

    def new(self, name: str) -> Class:
        """Return a class without answers yet, by the tallies of one that made place."""
        if not self._unused:
            shares = {metric: self.alpha_share / (self.most + 1) * _ALPHA_OF[metric] for metric in METRICS}
            return Class(name, {metric: Tally(self.plan, name, metric, shares[metric]) for metric in METRICS})
        found = self._unused.pop()
        for tally in found.tallies.values():
            tally.begin(name)
        return Class(name, found.tallies)


class Classes:
    """Of each kind its classes. A version is judged in every one of them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.whole = Kind(plan, "", 0, 0.7).new(ALL)
        self._buckets = Kind(plan, "", len(BUCKETS), 0.1)
        self._languages = Kind(plan, "lang:", _MOST_LANGUAGES, 0.08)
        self._tenants = Kind(plan, "tenant:", _MOST_TENANTS, 0.12)

    def find(self, seen: Observation) -> tuple[Class, ...]:
        """Return the classes of an answer; those that its gateway does not name are left out."""
        found = [self.whole, self._buckets.find(seen.bucket)]
        found += [self._languages.find(seen.language)] if seen.language else []
        found += [self._tenants.find(seen.tenant)] if seen.tenant else []
        return tuple(found)

    def all(self) -> list[Class]:
        kinds = (self._buckets, self._languages, self._tenants)
        return [self.whole, *(each for kind in kinds for each in kind.classes.values())]

    def asked(self, side: Side, since_epoch: int) -> int:
        """Return a side's questions since an epoch."""
        return _since(self.whole.asked, since_epoch)[side]

    def diverted(self, sides: Sequence[Side], since_epoch: int) -> dict[str, dict[Side, float]]:
        """Return the classes whose questions a side's lane had no time for, and each side's share of such questions
        since an epoch: more than `_MOST_DIVERTED` of a side's, or of the canary's more than chance and the margin
        explain. Those that are certainly rarer than `_RARE` are left out."""
        fewest = _RARE * _since(self.whole.asked, since_epoch).total() - _UNCERTAIN
        found = {}
        for each in self.all():
            asked, diverted = _since(each.asked, since_epoch), _since(each.diverted, since_epoch)
            beyond = diverted["canary"] - diverted["control"] - self._plan.margin * asked["canary"]
            is_more = len(sides) > 1 and beyond > max(_LEAST_DIVERTED, _DOUBTFUL * math.sqrt(diverted.total()))
            most = {side: max(_LEAST_DIVERTED, _MOST_DIVERTED * asked[side]) for side in sides}
            if asked.total() >= fewest and (is_more or any(diverted[side] > most[side] for side in sides)):
                found[each.name] = {side: diverted[side] / asked[side] for side in sides if asked[side]}
        return found

    def loses_more(self, since_epoch: int) -> dict[str, dict[Side, float]]:
        """Return the classes in which the canary may lose more questions than its control and the margin, and each
        side's share of lost questions since an epoch.

        All the traffic has to show that it loses no more, also if questions are lost together. A bucket or a language
        is named only if the canary has lost more than its control, since a rare class would take too long to show that.
        Tenants are left out: of many equal ones some look worse at any time."""
        fewest, found = _RARE * _since(self.whole.asked, since_epoch).total() - _UNCERTAIN, {}
        for each in [self.whole, *self._buckets.classes.values(), *self._languages.classes.values()]:
            asked, lost = _since(each.asked, since_epoch), _since(each.lost, since_epoch)
            if asked.total() < fewest or not (asked["canary"] and asked["control"]):
                continue
            shares: dict[Side, float] = {side: lost[side] / asked[side] for side in asked}
            variance = math.fsum(share * (1 - share) / asked[side] for side, share in shares.items())
            more, is_whole = shares["canary"] - shares["control"], each is self.whole
            if is_whole:
                batches = [batch for epoch, of in each.batches.items() if epoch >= since_epoch for batch in of.all()]
                variance = max(variance, variance_of(batches))
            most = more + (_CERTAIN if is_whole else _DOUBTFUL) * math.sqrt(variance)
            if most > self._plan.margin and (more > 0 or is_whole):
                found[each.name] = shares
        return found

    def lacking(self, sides: Sequence[Side], least: int) -> dict[str, int]:
        """Return the languages and tenants with fewer than `least` answers of one of the sides, and how many they have.
        Those that are certainly rarer than `_RARE` are left out."""
        fewest_in_all = _RARE * self.whole.answers.total() - _UNCERTAIN
        found = {}
        for each in [*self._languages.classes.values(), *self._tenants.classes.values()]:
            fewest = min(each.answers[side] for side in sides)
            if fewest < least and each.answers.total() >= fewest_in_all:
                found[each.name] = fewest
        return found


def _since(counts: Counter[tuple[Side, int]], epoch: int) -> Counter[Side]:
    """Return the counts of each side since an epoch."""
    found: Counter[Side] = Counter()
    for (side, of), count in counts.items():
        found[side] += count if of >= epoch else 0
    return found
