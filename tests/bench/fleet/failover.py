"""A gateway with many streams dies: when each goes on at the survivors, in virtual time.

A survivor is one core. What it has to do waits in two lines, new sockets and replies, and each line gets half of what
its own clients leave it, and what the other leaves over. The survivors are alike, so one of them is simulated with its
share of the streams. The worker goes on writing to the dead gateway's partition, less and less as streams end.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from msgspec import Struct

from ops.measure.quantiles import percentile

Way = Literal["log", "worker"]

_TICK_S: Final = 0.005
_LONGEST_S: Final = 120.0
_RECALL_S: Final = (
    1.0  # as gateway/request/entry.py: beyond it the FAQ answers where there is no text, and no later deadline
)
_TINY_S: Final = 1e-9
_NOTICE_S: Final = 0.02  # to the worker and back, two of Kafka's acknowledgements and a poll


class Costs(Struct, frozen=True, kw_only=True):
    """CPU of a gateway, in seconds: to take a client back, to pass over a record of the log, to tell a reply."""

    client_s: float
    pass_s: float
    tell_s: float


class Streams(Struct, frozen=True, kw_only=True):
    """`replies_per_s` of all together; each has its first text after `first_s`, and two deadlines from its receipt."""

    number: int = 10_000
    replies_per_s: float
    shortest_s: float = 2.0
    longest_s: float = 12.0
    first_s: float = 1.0
    soft_s: float = 3.0
    hard_s: float = 15.0
    back_within_s: float = 0.5


class GoneOn(Struct, frozen=True, kw_only=True):
    """`by_faq` is the share of the streams that the FAQ answered though the log held their answer."""

    survivors: int
    way: Way
    back_s: float  # the last client
    p50_s: float
    p99_s: float
    all_s: float
    by_faq: float


@dataclass(slots=True)
class _Stream:
    """Its times from the gateway's death on."""

    back_s: float
    asked_s: float
    left_s: float
    has_text: bool
    taken_s: float = _LONGEST_S
    told_s: float = _LONGEST_S


@dataclass(slots=True)
class _Log:
    """The dead gateway's partition, in seconds of its full rate."""

    streams: Sequence[_Stream]
    position_s: float = 0.0
    round_: list[_Stream] = field(default_factory=list)
    end_s: float = 0.0
    _ends: list[float] = field(init=False)

    def __post_init__(self) -> None:
        alive, written = sorted(stream.left_s for stream in self.streams), 0.0
        self._ends = []
        ended = 0
        for tick in range(round(_LONGEST_S / _TICK_S)):
            while ended < len(alive) and alive[ended] <= tick * _TICK_S:
                ended += 1
            written += _TICK_S * (1 - ended / len(alive))
            self._ends.append(written)

    def written_s(self, now_s: float) -> float:
        """Up to then; before the death a second is a second."""
        return now_s if now_s <= 0 else self._ends[min(len(self._ends) - 1, int(now_s / _TICK_S))]


def go_on(streams: Streams, costs: Costs, *, survivors: int, way: Way, busy: float, seed: int = 1) -> GoneOn:
    """`busy`: the share of its core that a survivor's own clients take."""
    survivor = _Survivor(streams, costs, way, Random(seed), survivors)
    tick, left_s = 0, 0.0
    while tick * _TICK_S < _LONGEST_S and not survivor.done:
        left_s = min(0.0, survivor.work(tick * _TICK_S, _TICK_S * (1 - busy) + left_s))
        tick += 1
    return _summed_up(survivor.ours, streams, survivors, way)


class _Survivor:
    def __init__(self, streams: Streams, costs: Costs, way: Way, chance: Random, survivors: int) -> None:
        self.ours = _draw(streams, streams.number // survivors, chance)
        self._streams, self._costs, self._way = streams, costs, way
        self._log = _Log(self.ours)
        self._coming = deque(sorted(self.ours, key=lambda stream: stream.back_s))
        self._taken: list[_Stream] = []
        self._waiting: deque[_Stream] = deque()

    @property
    def done(self) -> bool:
        return not (self._coming or self._waiting or self._log.round_)

    def work(self, now_s: float, budget_s: float) -> float:
        """A tick's; what is left of the budget."""
        half_s = budget_s / 2 if self._waiting or self._log.round_ else 0.0
        left_s = self._take_back(now_s, budget_s - half_s) + half_s
        left_s = self._hear(now_s, left_s) if self._way == "worker" else self._read(now_s, left_s)
        return self._take_back(now_s, left_s)

    def _take_back(self, now_s: float, budget_s: float) -> float:
        while self._coming and self._coming[0].back_s <= now_s and budget_s > 0:
            stream = self._coming.popleft()
            stream.taken_s = now_s
            self._taken.append(stream)
            self._waiting.append(stream)
            budget_s -= self._costs.client_s
        return budget_s

    def _hear(self, now_s: float, budget_s: float) -> float:
        """The worker's word on each that was taken back, and what it says of them from then on."""
        alive = sum(stream.left_s > now_s for stream in self._taken) - len(self._waiting)
        a_second = self._streams.replies_per_s * max(0, alive) / self._streams.number
        budget_s -= a_second * _TICK_S * self._costs.tell_s
        while self._waiting and self._waiting[0].taken_s + _NOTICE_S <= now_s and budget_s > 0:
            self._waiting.popleft().told_s = now_s
            budget_s -= self._costs.tell_s
        return budget_s

    def _read(self, now_s: float, budget_s: float) -> float:
        """Read on in the log as far as the budget reaches, in rounds as `LogFollower` does."""
        log, end_s = self._log, self._log.written_s(now_s)
        if self._waiting and not log.round_:
            log.position_s, log.end_s = min(stream.asked_s for stream in self._waiting), end_s
            log.round_ = list(self._waiting)
            self._waiting.clear()
        if budget_s <= 0:
            return budget_s
        share = len(self._taken) / self._streams.number
        a_second_s = self._streams.replies_per_s * (self._costs.pass_s + share * self._costs.tell_s)
        read_s = min(end_s - log.position_s, budget_s / a_second_s)
        log.position_s += read_s
        if log.position_s >= log.end_s - _TINY_S:
            for stream in log.round_:
                stream.told_s = now_s
            log.round_ = []
        return budget_s - read_s * a_second_s


def _draw(streams: Streams, number: int, chance: Random) -> list[_Stream]:
    drawn: list[_Stream] = []
    for _ in range(number):
        whole_s = chance.uniform(streams.shortest_s, streams.longest_s)
        age_s = chance.uniform(0, whole_s)
        back_s = chance.uniform(0, streams.back_within_s)
        drawn.append(_Stream(back_s, -age_s, whole_s - age_s, age_s > streams.first_s))
    return drawn


def _summed_up(ours: Sequence[_Stream], streams: Streams, survivors: int, way: Way) -> GoneOn:
    due = [_due_s(stream, streams) for stream in ours]
    went_on = sorted(min(stream.told_s, limit) for stream, limit in zip(ours, due, strict=True))
    by_faq = sum(stream.told_s > limit for stream, limit in zip(ours, due, strict=True))
    return GoneOn(
        survivors=survivors,
        way=way,
        back_s=round(max(stream.taken_s for stream in ours), 2),
        p50_s=round(percentile(went_on, 0.50), 2),
        p99_s=round(percentile(went_on, 0.99), 2),
        all_s=round(went_on[-1], 2),
        by_faq=round(by_faq / len(ours), 3),
    )


def _due_s(stream: _Stream, streams: Streams) -> float:
    """When the FAQ answers, if nothing has been told by then: as `gateway.request.entry.adopted` has it."""
    hard_s = stream.asked_s + streams.hard_s
    latest_s = stream.taken_s + _RECALL_S if hard_s <= stream.taken_s else min(stream.taken_s + _RECALL_S, hard_s + 0.2)
    own_s = hard_s if stream.has_text else stream.asked_s + streams.soft_s
    return max(own_s, latest_s)
