"""One worker of twenty that hangs or dies costs only its own customers the model: in virtual time, with the gateway's
own admission.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

from gateway.destination.admission import Admission, AdmissionPolicy
from gateway.destination.breaker import BreakerState
from shared.wire.deadline import Deadline
from tests.support.builders.gateway import NOW, report

WORKERS = 20
SICK = 7
SOFT_MS = 1_000
WORD_MS = 100.0
REPORT_MS = 500.0
STEP_MS = 10.0  # a hundred requests a second
END_MS = 60_000.0
BEGIN_MS, OVER_MS = 10_000.0, 44_000.0
OVERDUE_MS = 500.0
MOVED_MS = (16_000.0, 17_000.0)


@dataclass
class Fleetful:
    """With `hangs` the sick worker stops from `BEGIN_MS` to `OVER_MS` and keeps its partition; otherwise it is gone,
    and its group reassigns the partitions within `MOVED_MS`.
    """

    hangs: bool
    admission: Admission = field(default_factory=lambda: Admission(AdmissionPolicy()))
    lights: Counter[tuple[bool, str | None]] = field(default_factory=Counter)  # of the sick one's requests, and why
    late_lights: Counter[str | None] = field(default_factory=Counter)  # after it is all over
    waited: int = 0  # for the deadline, in vain
    _words: list[tuple[float, int, str]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=count)

    def run(self) -> None:
        random, now = Random(1), 0.0
        while now < END_MS:
            while self._words and self._words[0][0] <= now:
                at, _, name = heappop(self._words)
                self.admission.note_first_reply(name, NOW + at)
                self.admission.release(name)
            if now % REPORT_MS == 0:
                self._report(now)
            if now % 1_000 == 0:
                self.admission.fleet.expire(NOW + now)
            self._ask(now, random.randrange(WORKERS))
            now += STEP_MS

    def _report(self, now: float) -> None:
        for worker in range(WORKERS):
            if worker == SICK and BEGIN_MS + OVERDUE_MS * self.hangs <= now < (OVER_MS if self.hangs else END_MS):
                continue
            partitions = [worker]
            if not self.hangs and now >= MOVED_MS[0]:
                partitions = [] if now < MOVED_MS[1] else [worker, *([SICK] if worker == SICK + 1 else [])]
            told = report(f"w{worker}", partitions=partitions, first_token_ms=WORD_MS)
            self.admission.fleet.observe(told, NOW + now)

    def _ask(self, now: float, partition: int) -> None:
        name = f"r{now}"
        decision = self.admission.decide(
            name,
            "t",
            "short",
            Deadline.after(NOW + now, first_token_ms=SOFT_MS, whole_ms=5_000),
            partition=partition,
            received_unix_ms=NOW + now,
            now_unix_ms=NOW + now,
        )
        sick = partition == SICK and now >= BEGIN_MS and now < (OVER_MS if self.hangs else MOVED_MS[1])
        self.lights[partition == SICK, decision.fallback] += 1
        if now > OVER_MS + 10_000:
            self.late_lights[decision.fallback] += 1
        if decision.fallback is not None:
            return
        word = (OVER_MS if self.hangs else MOVED_MS[1]) if sick else now
        self.waited += word + WORD_MS > now + SOFT_MS
        heappush(self._words, (word + WORD_MS, next(self._order), name))

    @property
    def others_lost(self) -> float:
        """Return the share of FAQ answers among customers of healthy workers."""
        others = {light: number for (sick, light), number in self.lights.items() if not sick}
        return 1 - others[None] / sum(others.values())


def test_only_the_hanging_worker_is_cut_off() -> None:
    fleet = Fleetful(hangs=True)
    fleet.run()
    assert fleet.others_lost <= 0.01
    assert fleet.lights[True, "breaker"] >= 100, "most of its customers get the FAQ immediately"
    assert fleet.waited <= 60, "the others find out that it hangs, and that it still does"
    assert fleet.late_lights == {None: fleet.late_lights.total()}
    assert fleet.admission.fleet.open_breakers() == {}


def test_a_killed_worker_affects_no_other_while_its_partitions_move() -> None:
    fleet = Fleetful(hangs=False)
    fleet.run()
    assert fleet.others_lost <= 0.01
    assert fleet.late_lights == {None: fleet.late_lights.total()}


def test_if_most_workers_are_late_all_are_cut_off() -> None:
    """This includes partitions whose reader is unknown."""
    admission = Admission(AdmissionPolicy())
    deadline = Deadline.after(NOW, first_token_ms=SOFT_MS, whole_ms=5_000)
    for number in range(30):
        admission.decide(f"r{number}", "t", "short", deadline, partition=None, received_unix_ms=NOW, now_unix_ms=NOW)
        admission.note_first_reply(f"r{number}", NOW + (10 if number < 16 else 9_000))
    assert admission.breaker.state is BreakerState.CLOSED
    for number in range(3):
        admission.decide(f"s{number}", "t", "short", deadline, partition=None, received_unix_ms=NOW, now_unix_ms=NOW)
        admission.note_first_reply(f"s{number}", NOW + 9_000)
    assert admission.breaker.state is BreakerState.OPEN
