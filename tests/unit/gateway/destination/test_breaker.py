"""The breaker opens on a P99 above its threshold, later tries a few requests, and closes when all of them are quick."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.destination.breaker import Breaker, BreakerPolicy, BreakerState
from tests.unit.examples import examples

THRESHOLD_MS = 1_500.0
POLICY = BreakerPolicy(window_ms=30_000.0, fewest_words=20, open_ms=5_000.0, num_probes=3, close_ratio=0.8)
NOW = 1_000_000.0


@pytest.fixture
def breaker() -> Breaker:
    return Breaker(POLICY)


def word(breaker: Breaker, took_ms: float, now: float = NOW, probe: int | None = None) -> BreakerState:
    breaker.measured(took_ms=took_ms, threshold_ms=THRESHOLD_MS, probe=probe, now_unix_ms=now)
    return breaker.state


def open_it(breaker: Breaker, now: float = NOW) -> None:
    for _ in range(20):
        word(breaker, 2_000.0, now)
    assert breaker.state is BreakerState.OPEN


def half_open_it(breaker: Breaker, now: float = NOW) -> list[int | None]:
    """Opened, its time over, and every probe sent."""
    if breaker.state is BreakerState.CLOSED:
        open_it(breaker, now)
    probes: list[int | None] = []
    while breaker.allows(now + 5_000):
        probes.append(breaker.record_send())
    assert breaker.state is BreakerState.HALF_OPEN
    assert len(probes) == 3
    return probes


@pytest.mark.parametrize(("quick", "late"), [(0, 19), (46, 4), (990, 10)])
def test_one_late_reply_more_than_the_p99_of_enough_replies_opens_it(breaker: Breaker, quick: int, late: int) -> None:
    """Nineteen have no P99, and one straggler among few does not count; at 1,000 replies the P99 allows ten
    late ones.
    """
    assert {word(breaker, THRESHOLD_MS) for _ in range(quick)} <= {BreakerState.CLOSED}
    assert {word(breaker, 1_501.0) for _ in range(late)} == {BreakerState.CLOSED}
    assert word(breaker, 1_501.0) is BreakerState.OPEN
    assert (breaker.words, breaker.late) == (quick + late + 1, late + 1)


def test_replies_outside_the_window_are_forgotten(breaker: Breaker) -> None:
    for _ in range(19):
        word(breaker, 9_000.0, NOW)
    assert word(breaker, 9_000.0, NOW + 30_000) is BreakerState.CLOSED
    assert (breaker.words, breaker.late) == (1, 1)


@pytest.mark.parametrize(("later_ms", "left"), [(999, 1), (1_000, 2)])
def test_a_thirtieth_of_the_window_is_forgotten_at_a_time(breaker: Breaker, later_ms: int, left: int) -> None:
    """So the memory does not grow with the replies."""
    for now in (NOW, NOW + later_ms, NOW + 30_000):
        word(breaker, 10.0, now)
    assert breaker.words == left


def test_an_open_breaker_passes_nothing_for_its_time_and_then_only_probes(breaker: Breaker) -> None:
    open_it(breaker)
    assert not any(breaker.allows(NOW + later) for later in range(0, 5_000, 100))
    half_open_it(breaker)
    assert not breaker.allows(NOW + 60_000)


def test_it_closes_when_every_probe_is_fast_and_starts_over(breaker: Breaker) -> None:
    probes = half_open_it(breaker)
    states = [word(breaker, 1_200.0, NOW + 6_000, probe) for probe in probes]
    assert states == [BreakerState.HALF_OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]
    assert (breaker.words, breaker.late) == (0, 0)
    assert breaker.record_send() is None


def test_closing_asks_more_than_staying_closed(breaker: Breaker) -> None:
    """1,300 ms is below the threshold, and not below four fifths of it."""
    assert word(breaker, 1_300.0) is BreakerState.CLOSED
    probe, *_ = half_open_it(breaker)
    assert word(breaker, 1_300.0, NOW + 6_000, probe) is BreakerState.OPEN
    assert not breaker.allows(NOW + 6_001)


def test_a_probe_that_was_never_sent_is_replaced(breaker: Breaker) -> None:
    probe, *_ = half_open_it(breaker)
    breaker.withdraw(probe)
    assert breaker.allows(NOW + 6_000)


def test_requests_sent_before_it_opened_decide_nothing_now(breaker: Breaker) -> None:
    """Nor does a probe from an earlier opening."""
    old, *_ = half_open_it(breaker)
    word(breaker, 9_000.0, NOW + 6_000, old)
    assert breaker.allows(NOW + 11_000)
    new = breaker.record_send()
    assert new != old
    for probe in (None, old):
        assert word(breaker, 9_000.0, NOW + 11_500, probe) is BreakerState.HALF_OPEN
        assert word(breaker, 1.0, NOW + 11_500, probe) is BreakerState.HALF_OPEN


def test_setting_the_clock_back_keeps_it_neither_open_nor_closed(breaker: Breaker) -> None:
    for _ in range(19):
        word(breaker, 9_000.0, NOW)
    word(breaker, 9_000.0, NOW - 3_600_000)
    assert breaker.words == 1
    open_it(breaker, NOW)
    assert breaker.allows(NOW - 3_600_000)


class AnyLoad(RuleBasedStateMachine):
    """Requests and replies in any order, compared with the simplest model of the window."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(POLICY)
        self.now = NOW
        self.opened: float | None = None
        self.words: list[tuple[float, bool]] = []
        self.out: list[int | None] = []
        self.good = 0

    def _follow(self, before: BreakerState) -> None:
        """Every change is one of the four that there are."""
        after = self.breaker.state
        if after is before:
            return
        assert (before, after) in {
            (BreakerState.CLOSED, BreakerState.OPEN),
            (BreakerState.OPEN, BreakerState.HALF_OPEN),
            (BreakerState.HALF_OPEN, BreakerState.OPEN),
            (BreakerState.HALF_OPEN, BreakerState.CLOSED),
        }
        self.opened = self.now if after is BreakerState.OPEN else self.opened
        self.good = 0
        self.words.clear()

    @rule(later=st.sampled_from([0.0, 1.0, 900.0, 1_000.0, 5_000.0, 31_000.0]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule()
    def send(self) -> None:
        before = self.breaker.state
        allowed = self.breaker.allows(self.now)
        if before is BreakerState.OPEN:
            assert self.opened is not None
            assert allowed is (self.now - self.opened >= POLICY.open_ms)
        if before is BreakerState.CLOSED:
            assert allowed
        self._follow(before)
        if allowed:
            self.out.append(self.breaker.record_send())

    @precondition(lambda self: self.out)
    @rule(data=st.data(), took_ms=st.sampled_from([1.0, 1_200.0, 1_300.0, 1_500.0, 1_501.0, 60_000.0]))
    def hear(self, data: st.DataObject, took_ms: float) -> None:
        probe = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self._hear(took_ms, probe)

    @rule(took_ms=st.sampled_from([1.0, 1_501.0]), times=st.integers(1, 30))
    def hear_many(self, took_ms: float, times: int) -> None:
        for _ in range(times):
            self._hear(took_ms, None)

    def _hear(self, took_ms: float, probe: int | None) -> None:
        before = self.breaker.state
        self.breaker.measured(took_ms=took_ms, threshold_ms=THRESHOLD_MS, probe=probe, now_unix_ms=self.now)
        if before is BreakerState.CLOSED:
            self.words.append((self.now, took_ms > THRESHOLD_MS))
            if self.breaker.state is BreakerState.OPEN:
                recent = [late for at, late in self.words if at > self.now - POLICY.window_ms]
                assert sum(recent) * 100 > len(recent)
                assert len(recent) >= POLICY.fewest_words
        elif before is BreakerState.HALF_OPEN and self.breaker.state is not BreakerState.OPEN:
            self.good += probe is not None and took_ms <= THRESHOLD_MS * POLICY.close_ratio
            if self.breaker.state is BreakerState.CLOSED:
                assert self.good >= POLICY.num_probes
        self._follow(before)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.breaker.withdraw(self.out.pop(data.draw(st.integers(0, len(self.out) - 1))))

    @invariant()
    def no_more_probes_out_than_allowed(self) -> None:
        if self.breaker.state is BreakerState.HALF_OPEN:
            assert self.out.count(self.breaker._episode) + self.breaker._probes_good <= POLICY.num_probes

    @invariant()
    def a_dead_fleet_is_noticed(self) -> None:
        """After twenty late replies within the window, and no others, it cannot be closed."""
        recent = [late for at, late in self.words if at > self.now - POLICY.window_ms * 0.9]
        if len(self.words) == len(recent) >= POLICY.fewest_words and all(recent):
            assert self.breaker.state is not BreakerState.CLOSED

    @invariant()
    def it_is_never_stuck(self) -> None:
        """An open one half-opens, and a half-open one has a probe out or lets one through."""
        if self.breaker.state is BreakerState.HALF_OPEN and self.breaker._episode not in self.out:
            assert self.breaker.allows(self.now)


AnyLoad.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
TestAnyLoad = AnyLoad.TestCase
