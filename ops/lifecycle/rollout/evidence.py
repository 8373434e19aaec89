"""Judge whether a canary is worse than its control. The evidence may be checked after every answer. Pure.

Each metric of each class (all the traffic, a bucket, a language, a tenant) has a separate test, a `Detector`, and a
share of alpha. The canary is worse once one test reaches 1 / (alpha * its share): by the union bound a canary that is
not worse in any class is rolled back with a probability of at most alpha. This holds however the tests depend on each
other. A mean of their wealths would not keep it, since each test advances with other pairs, and e-processes of
different filtrations may not be averaged (Choe and Ramdas, "Combining evidence across filtrations", 2024).

With a control only pairs of one canary's and one control's answer count: both sides share load, hour and drift, so that
an outage is no evidence. Without a control the canary is held to the tolerated share of bad answers.

A conversation's answers depend on each other, so that one unlucky customer could look like many. A conversation counts
in a metric up to its first bad answer and no further, and answers are paired with answers of conversations that have
got as far. A conversation that has come from another lane begins with a cold cache: its first answer counts only in the
metrics that time does not change.
Answers of one side that end together, as in a worker's crash, depend on each other too: they are judged as one
(`Tally.add`). So are those that a worker ran when one of its answers went bad (`Evidence._stall_of`). Answers that
waited in one queue depend on each other as well: of equal versions one has the longer queue for a while.

A canary that has lost 25 customers of a class beyond its control's and the margin is rolled back once bets on that
(`Losses`) reach 2,000: what one cause loses is one event for the tests, and many customers. This hard stop is outside
of the bound of alpha: it adds at most 0.05 % of false rollbacks per class (docs/decisions/0041).
"""

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from ops.lifecycle.rollout.classes import Class, Classes
from ops.lifecycle.rollout.detector import Cause
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.tally import METRICS, WAITING, Metric, Side, Tally
from ops.measure.quantiles import percentile
from shared.wire.messages import Bucket
from shared.wire.reports import Observation
from shared.wire.topics import BUCKETS

_MOST_LOG: Final = 600.0
_ROUNDING: Final = 1e-3  # of the recorded e-value, which says later that this was an alarm
_TTFTS: Final = 200
_LEAST_TTFTS: Final = 20
_SLOW: Final = 0.95
_RECENT: Final = 50
_LEAST_RECENT: Final = 20
_RECENT_MS: Final = 60_000
CONTROL_BAD: Final = 0.25
_MOST_CONVERSATIONS: Final = 50_000
_MOST_ANSWERED: Final = 8
# A version that fails every answer is no worker that hangs: after two events without a good answer each one counts.
_MOST_EVENTS: Final = 2
_OF_STALL: Final[frozenset[Metric]] = frozenset({"failed", "missed"})
# What a customer does at will: one customer alone could end a rollout, as each answer names its version.
_AT_WILL: Final[frozenset[Metric]] = frozenset({"rating", "cancelled", "handed_over"})
_MOST_OF_A_CUSTOMER: Final = 3
_TIMELESS: Final[tuple[Metric, ...]] = ("failed", "unsure", "handed_over")


@dataclass(slots=True)
class _Conversation:
    """`answered` are its last answers; `side` and `classes` those of the last that counts. `bad` are the metrics in
    which it counts no more."""

    answered: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_ANSWERED))
    answers: int = 0
    ratings: int = 0
    side: Side | None = None
    classes: tuple[Class, ...] | None = None
    last_rated: str = ""
    bad: set[Metric] = field(default_factory=set)


@dataclass(slots=True)
class _Stall:
    """A worker that may have hung or died when an answer of it went bad, at `began_unix_ms`. `events` are those since
    an answer that it was asked for later has ended well. `causes` are those of its bad answers in each tally, by class
    and metric: in each the first is judged."""

    began_unix_ms: int
    events: int = 1
    causes: dict[tuple[str, Metric], Cause] = field(default_factory=dict)

    def has(self, seen: Observation) -> bool:
        """Return whether an answer was running when the first one went bad."""
        return 0 < seen.asked_unix_ms <= self.began_unix_ms


@dataclass(frozen=True, slots=True)
class _Counted:
    """An answer as it counts: `first` in its conversation, in all these classes. It ended or was rated at `unix_ms`,
    and was asked for at `asked_unix_ms`, if that is known."""

    side: Side
    talk: _Conversation
    first: bool
    classes: tuple[Class, ...]
    unix_ms: int
    asked_unix_ms: int = 0
    ttft_ms: float = 0.0
    customer: str = ""


@dataclass(slots=True)
class Evidence:
    """What is known of both sides by the observations read so far.

    Attributes:
        answers: by bucket and side, how many answers the version's model wrote under each epoch
        found: the first test that gave an alarm; None before
        lost_beyond: if the hard stop gave the alarm, how many more conversations than allowed the canary lost in the
            class; None otherwise
    """

    plan: Plan
    answers: dict[tuple[Bucket, Side], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    found: Tally | None = None
    lost_beyond: float | None = None
    _log_found: float = -math.inf
    _classes: Classes = field(init=False)
    _cold: Counter[Side] = field(default_factory=Counter)
    _conversations: OrderedDict[str, _Conversation] = field(default_factory=OrderedDict)
    _ttfts: deque[float] = field(default_factory=lambda: deque(maxlen=_TTFTS))
    _waiting_ttfts: dict[bool, deque[_Counted]] = field(
        default_factory=lambda: {first: deque(maxlen=WAITING) for first in (True, False)}
    )
    _control: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _control_bad_since: int | None = None
    _stalls: dict[tuple[Side, str], _Stall] = field(default_factory=dict)
    _of_customers: Counter[tuple[str, Metric]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._classes = Classes(self.plan)

    @property
    def tallies(self) -> dict[Metric, Tally]:
        """Return the tallies of all the traffic, by metric."""
        return self._classes.whole.tallies

    def add(self, seen: Observation) -> None:
        """Count the next observation.

        Ignored are those of other versions, of answers begun before the rollout, and repeated ones. An answer that the
        champion gave in the lane's place counts for neither version, only as a question that the lane had no time for.
        """
        side = self._side(seen)
        if side is None:
            return
        if seen.censored:
            for each in self._classes.find(seen):
                each.count(side, seen.epoch, diverted=True)
            return
        talk = self._conversation(seen.conversation)
        if not seen.revision:
            self._add_elsewhere(side, talk, seen)
        elif seen.rating is not None:
            self._add_rating(side, talk, seen, self._classes.find(seen))
        elif seen.response_id not in talk.answered:
            self._add_answer(side, talk, seen)

    def _side(self, seen: Observation) -> Side | None:
        if seen.epoch < self.plan.epoch:
            return None
        if seen.lane == "canary" and seen.revision in {self.plan.version, ""}:
            return "canary"
        return "control" if seen.lane == "control" and seen.revision in {self.plan.champion, ""} else None

    def _conversation(self, digest: str) -> _Conversation:
        """Return what is known of a conversation. Those that have been quiet longest are forgotten."""
        talk = self._conversations.setdefault(digest, _Conversation())
        self._conversations.move_to_end(digest)
        if len(self._conversations) > _MOST_CONVERSATIONS:
            self._conversations.popitem(last=False)
        return talk

    def _add_elsewhere(self, side: Side, talk: _Conversation, seen: Observation) -> None:
        """Take what a gateway says of another one's answer: it counts if that one's observation has."""
        if talk.side != side or talk.classes is None:
            return
        if seen.rating is not None and seen.response_id in talk.answered:
            self._add_rating(side, talk, seen, talk.classes)
        elif seen.handed_over:
            answer = _Counted(side, talk, talk.answers == 1, talk.classes, seen.unix_ms, customer=seen.customer)
            self._tally(answer, "handed_over", bad=True)

    def _add_rating(self, side: Side, talk: _Conversation, seen: Observation, classes: tuple[Class, ...]) -> None:
        if seen.response_id != talk.last_rated:
            talk.last_rated = seen.response_id
            talk.ratings += 1
            answer = _Counted(side, talk, talk.ratings == 1, classes, seen.unix_ms, customer=seen.customer)
            self._tally(answer, "rating", bad=seen.rating == "down")

    def _add_answer(self, side: Side, talk: _Conversation, seen: Observation) -> None:
        talk.answered.append(seen.response_id)
        talk.answers += 1
        if self._cold[side] < self.plan.warmup:
            self._cold[side] += 1
            return
        first = talk.answers == 1
        ended, asked = seen.unix_ms, seen.asked_unix_ms
        answer = _Counted(side, talk, first, self._classes.find(seen), ended, asked, seen.ttft_ms or 0.0, seen.customer)
        talk.side, talk.classes = side, answer.classes
        for each in answer.classes if not seen.moved else ():
            each.count(side, seen.epoch, bad=seen.failed or seen.missed)
        stall, is_victim = self._stall_of(side, seen)
        for metric in self._judged_by(seen):
            bad = getattr(seen, metric) or (metric == "missed" and seen.failed)
            self._tally(answer, metric, bad=bad, stall=stall, is_victim=is_victim and metric in _OF_STALL)
        if seen.moved or seen.answered_by not in {"", seen.revision}:
            return
        if seen.answered_by:  # an FAQ entry or a greeting says nothing of the model
            for each in answer.classes:
                each.answers[side] += 1
            self.answers[seen.bucket, side][seen.epoch] += 1
        # Of an answer that may be the first after a move, the cold cache is seen in its first text.
        if seen.ttft_ms is not None and not (first and seen.moved is None):
            self._add_ttft(answer)
        if side == "control":
            self._add_control(seen)

    def _stall_of(self, side: Side, seen: Observation) -> tuple[_Stall | None, bool]:
        """Return the event that an answer belongs to, and whether another answer has begun it. All that a worker runs
        when it hangs or dies, and an answer of it goes bad, are one event, good or bad, also if they miss their
        deadlines one after another. The event is over once one of them ends well."""
        key, is_bad = (side, seen.worker_id), seen.failed or seen.missed
        stall = self._stalls.get(key)
        if stall is not None and stall.has(seen):
            if not is_bad and seen.unix_ms > stall.began_unix_ms:
                del self._stalls[key]
            return stall, True
        if is_bad and (events := 0 if stall is None else stall.events) < _MOST_EVENTS:
            self._stalls[key] = _Stall(seen.unix_ms, events + 1)
            return self._stalls[key], False
        if stall is not None and not is_bad:
            stall.events = 0
        return None, False

    def _add_control(self, seen: Observation) -> None:
        self._control.append((seen.unix_ms, seen.failed or seen.missed))
        is_bad = (self.control_bad(seen.unix_ms) or 0.0) >= CONTROL_BAD
        self._control_bad_since = (self._control_bad_since or seen.unix_ms) if is_bad else None

    def _judged_by(self, seen: Observation) -> tuple[Metric, ...]:
        """Return the metrics that an answer says something of."""
        if seen.answered_by not in {"", seen.revision}:
            found: tuple[Metric, ...] = ("missed",)
        elif seen.cancelled or seen.handed_over:
            found = ("cancelled", "handed_over")
        else:
            found = ("failed", "missed", "unsure", "cancelled", "handed_over")
        return tuple(metric for metric in found if metric in _TIMELESS) if seen.moved else found

    def _add_ttft(self, answer: _Counted) -> None:
        """Take the time to a first text. It is slow by the control's p95 of the pairs before its own: both of a pair
        are judged by one limit, which neither has moved."""
        if "slow" in answer.talk.bad:
            return
        waiting = self._waiting_ttfts[answer.first]
        if not waiting or waiting[0].side == answer.side:
            waiting.append(answer)
            return
        pair = (waiting.popleft(), answer)
        if len(self._ttfts) >= _LEAST_TTFTS and not any("slow" in each.talk.bad for each in pair):
            limit_ms = percentile(sorted(self._ttfts), _SLOW)
            for each in pair:
                self._tally(each, "slow", bad=each.ttft_ms > limit_ms)
        self._ttfts.extend(each.ttft_ms for each in pair if each.side == "control")

    def _tally(
        self, answer: _Counted, metric: Metric, *, bad: bool, stall: _Stall | None = None, is_victim: bool = False
    ) -> None:
        """Judge an answer. Of the victims of a stall only the first bad one of a class is judged; the others count for
        the hard stop."""
        if metric in answer.talk.bad or (bad and self._is_of_busy_customer(answer.customer, metric)):
            return
        for each in answer.classes:
            tally = each.tallies[metric]
            if tally.of != each.name:  # another class has taken its place
                continue
            asked, ended = answer.asked_unix_ms, answer.unix_ms
            cause = None if stall is None else stall.causes.get((each.name, metric))
            leans = False
            if not is_victim or (bad and cause is None):
                leans = tally.add(answer.side, first=answer.first, bad=bad, unix_ms=ended, asked_unix_ms=asked)
                if bad and stall is not None:
                    stall.causes[each.name, metric] = tally.latest[answer.side]
            elif bad and cause is not None:
                tally.lose(answer.side, cause)
            is_certain = leans and tally.log_weighted >= _ROUNDING - math.log(self.plan.alpha)
            if self.found is None and (is_certain or (metric == "missed" and bad and tally.is_spent)):
                self.found, self._log_found = tally, tally.log_weighted
                self.lost_beyond = None if is_certain else tally.lost_beyond
        if bad:
            answer.talk.bad.add(metric)

    def _is_of_busy_customer(self, customer: str, metric: Metric) -> bool:
        """Count what a customer does at will to an answer of either side. Return whether it is too much to count as
        evidence."""
        if not customer or metric not in _AT_WILL:
            return False
        self._of_customers[customer, metric] += 1
        if len(self._of_customers) > _MOST_CONVERSATIONS:
            del self._of_customers[next(iter(self._of_customers))]
        return self._of_customers[customer, metric] > _MOST_OF_A_CUSTOMER

    @property
    def alarm(self) -> bool:
        """Return whether the canary is or was worse, as far as `alpha` allows to say, or has cost a class too many."""
        return self.found is not None

    def tests(self) -> Iterator[Tally]:
        """Yield the tests of all metrics and classes."""
        for each in self._classes.all():
            yield from each.tallies.values()

    @property
    def worst(self) -> Tally:
        """Return the test with the most evidence, in the class that has given the alarm, else in the one nearest to it.
        What failed has missed its deadline too: the metric is chosen by its own evidence."""
        nearest = self.found or max(self.tests(), key=lambda test: test.log_weighted)
        return max((test for test in self.tests() if test.of == nearest.of), key=lambda test: test.log_e)

    def numbers(self) -> dict[str, float]:
        """Return the figures that a decision is recorded with.

        `e` is the highest e-value of all tests, each multiplied by its test's share of alpha; after an alarm that of
        the alarm. The other figures are of all the traffic: `e_missed` is the metric's e-value, `missed_canary` the
        share of the canary's bad answers."""
        highest = max(test.log_weighted for test in self.tests())
        figures = {"e": _shown(max(highest, self._log_found))}
        for metric in METRICS:
            figures[f"e_{metric}"] = _shown(self.tallies[metric].log_e)
            for side in get_args(Side):
                if (share := self.tallies[metric].share(side)) is not None:
                    figures[f"{metric}_{side}"] = round(share, 4)
        figures |= {} if self.lost_beyond is None else {"lost_beyond": round(self.lost_beyond, 1)}
        return figures | {f"answers_{side}": float(self.answered(side)) for side in get_args(Side)}

    def diverted(self, sides: Sequence[Side], since_epoch: int) -> dict[str, dict[Side, float]]:
        """Return the classes whose questions a side's lane had no time for, with each side's share of such questions.
        A version is not judged by them, so it is not promoted for them."""
        return self._classes.diverted(sides, since_epoch)

    def loses_more(self, since_epoch: int) -> dict[str, dict[Side, float]]:
        """Return the classes in which the canary may lose more questions than the margin allows, with each side's share
        of those that its lane did not answer in time."""
        return self._classes.loses_more(since_epoch)

    def lacking(self, sides: Sequence[Side]) -> dict[str, int]:
        """Return the languages and tenants with fewer answers of these sides than the plan asks of a class."""
        return self._classes.lacking(sides, self.plan.min_answers)

    def answered(self, side: Side, *, bucket: Bucket | None = None, since_epoch: int = 0) -> int:
        """Return how many answers the model wrote, of one bucket or all, asked under an epoch or later."""
        buckets = BUCKETS if bucket is None else (bucket,)
        found = [self.answers[of, side] for of in buckets if (of, side) in self.answers]
        return sum(count for counts in found for epoch, count in counts.items() if epoch >= since_epoch)

    def asked(self, side: Side, since_epoch: int) -> int:
        """Return how many counted questions were asked under an epoch or later, including those that the FAQ
        answered."""
        return self._classes.asked(side, since_epoch)

    def control_bad(self, now_unix_ms: float) -> float | None:
        """Return the share of the control's recent answers that failed or missed; None where they are too few."""
        recent = [bad for unix_ms, bad in self._control if now_unix_ms - unix_ms <= _RECENT_MS]
        return sum(recent) / len(recent) if len(recent) >= _LEAST_RECENT else None

    @property
    def control_bad_ms(self) -> int:
        """Return for how long the control has been bad in `CONTROL_BAD` of its recent answers, up to its last one."""
        return 0 if self._control_bad_since is None else self._control[-1][0] - self._control_bad_since


def _shown(log: float) -> float:
    return float(f"{math.exp(min(log, _MOST_LOG)):.4g}")
