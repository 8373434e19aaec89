"""Which upstream a request goes to: never above its capacity, never to an open one, back as soon as it works."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workers.engine.upstream.choice import MOST_WAIT_MS, Choice
from workers.engine.upstream.failures import UpstreamFailure, of_status

A, B = "http://a/v1", "http://b/v1"
PLACES = 3
BROKEN = UpstreamFailure("broken_stream", "half a chunk")
GONE = UpstreamFailure("unreachable", "ConnectError")
REFUSED = UpstreamFailure("refused", "status 400")
SILENT = UpstreamFailure("silent", "nothing came")
FAILURES = (None, None, BROKEN, GONE, REFUSED, SILENT, of_status(429, None), of_status(429, "3"))
SENT = st.floats(0, 5_000)


def both(now: float = 0.0) -> Choice:
    choice = Choice([A, B], places=PLACES)
    for address in choice.due(now):
        choice.probed(address, now, None, sent_unix_ms=now)
    return choice


def fail(choice: Choice, now: float, failure: UpstreamFailure) -> None:
    assert choice.pick("c", besides=(B,)) == A
    choice.ended(A, now, failure, answered=False, sent_unix_ms=now)


def test_nothing_is_sent_before_a_probe_is_answered() -> None:
    choice = Choice([A], places=PLACES)
    assert (choice.free, choice.pick("c"), choice.missing()) == (0, None, f"{A}: not reached yet")
    choice.probed(A, 0.0, None, sent_unix_ms=0.0)
    assert (choice.free, choice.pick("c"), choice.missing()) == (PLACES, A, None)


def test_a_conversation_stays_with_its_upstream_and_others_are_spread() -> None:
    """Its earlier turns are in that upstream's prefix cache."""
    first = {name: both().pick(name) for name in map(str, range(40))}
    assert all(both().pick(name) == address for name, address in first.items())
    assert set(first.values()) == {A, B}


def test_a_full_upstream_sends_a_conversation_to_the_next() -> None:
    choice = both()
    assert sorted(filter(None, (choice.pick("c") for _ in range(2 * PLACES)))) == [A] * PLACES + [B] * PLACES
    assert choice.pick("c") is None


def test_an_unreachable_upstream_is_left_immediately_and_waits_twice_as_long_each_time() -> None:
    choice, now = both(), 0.0
    fail(choice, now, GONE)
    waits = []
    for _ in range(9):
        assert choice.pick("c", besides=(B,)) is None
        since, now = now, choice._upstreams[A].opens_unix_ms
        waits.append(now - since)
        assert choice.due(now) == [A]
        choice.probed(A, now, GONE, sent_unix_ms=now)
    assert waits == [min(500.0 * 2**n, MOST_WAIT_MS) for n in range(9)]
    assert choice.back_unix_ms(besides=(B,)) == float("inf")
    assert choice.back_unix_ms(besides=(B,), patient=True) == now + MOST_WAIT_MS


PROVOKED = (BROKEN, of_status(500, None), of_status(403, None))


@pytest.mark.parametrize("failure", PROVOKED, ids=str)
def test_three_failures_that_words_may_provoke_have_the_shops_own_words_tried(failure: UpstreamFailure) -> None:
    choice = both()
    for _ in range(2):
        fail(choice, 0.0, failure)
    choice.ended(str(choice.pick("c", besides=(B,))), 0.0, None, answered=True, sent_unix_ms=0.0)
    for _ in range(2):
        fail(choice, 0.0, failure)
    assert not choice.is_suspected(A)
    fail(choice, 0.0, failure)
    assert (choice.due(0.0), choice.is_suspected(A), choice.is_open(A)) == ([A], True, False)
    choice.probed(A, 1.0, failure, sent_unix_ms=0.0)
    assert choice.is_open(A)


@pytest.mark.parametrize("failure", PROVOKED, ids=str)
def test_a_customer_whose_requests_fail_repeatedly_opens_no_breaker(failure: UpstreamFailure) -> None:
    """Each question in another conversation, and also while one request at a time tries."""
    choice = both()
    fail(choice, 0.0, GONE)
    choice.probed(A, 500.0, None, sent_unix_ms=490.0)
    for now in range(500, 1_000):
        address = choice.pick(f"c-{now}", besides=(B,))
        assert address == A
        choice.ended(A, now, failure, answered=False, sent_unix_ms=now, conversation=f"c-{now}")
        for each in choice.due(now):
            choice.probed(each, now, None, sent_unix_ms=now)
        assert not choice.is_open(A)
    assert choice.free == 2 * PLACES


def test_a_request_that_is_refused_says_nothing_about_the_next() -> None:
    choice = both()
    for _ in range(10):
        fail(choice, 0.0, REFUSED)
    assert choice.free == 2 * PLACES


def test_retry_after_is_obeyed_up_to_a_minute() -> None:
    for told, waits_ms in (
        ("7", 7_000),
        ("86400", 60_000),
        ("Wed, 21 Oct", 500),
        ("-3", 500),
        ("nan", 500),
        ("inf", 60_000),
    ):
        choice = both()
        fail(choice, 0.0, of_status(429, told))
        assert choice._upstreams[A].opens_unix_ms == waits_ms, told


def test_after_a_failure_one_request_tries_before_all_go_back() -> None:
    choice = both()
    fail(choice, 0.0, GONE)
    choice.probed(A, 500.0, None, sent_unix_ms=490.0)
    assert choice.pick("c", besides=(B,)) == A
    assert choice.pick("d", besides=(B,)) is None, "the first one is to bring text first"
    choice.heard(A, 600.0)
    assert [choice.pick("c", besides=(B,)) for _ in range(PLACES)] == [A] * (PLACES - 1) + [None]


def test_one_that_writes_for_others_is_slow_and_stays() -> None:
    choice = both()
    for now in range(10):
        choice.heard(A, now)
        fail(choice, now, SILENT)
    assert (choice.due(10.0), choice.missing(), choice.is_open(A)) == ([], None, False)


@pytest.mark.parametrize(("answer", "opens"), [(None, False), (SILENT, True), (GONE, True)])
def test_one_that_is_silent_is_probed_and_opened_where_it_does_not_answer(
    answer: UpstreamFailure | None, *, opens: bool
) -> None:
    choice = both()
    fail(choice, 5.0, SILENT)
    assert choice.due(5.0) == [A]
    choice.probed(A, 9.0, answer, sent_unix_ms=6.0)
    assert choice.is_open(A) == opens
    assert choice.due(9.0) == []


def test_a_probe_in_vain_of_one_that_writes_meanwhile_opens_nothing() -> None:
    choice = both()
    fail(choice, 5.0, SILENT)
    choice.heard(A, 7.0)
    choice.probed(A, 9.0, SILENT, sent_unix_ms=6.0)
    assert not choice.is_open(A)


def test_one_that_is_full_of_our_requests_has_fewer_places_until_it_answers() -> None:
    choice = both()
    assert [choice.pick("c", besides=(B,)) for _ in range(PLACES)] == [A] * PLACES
    choice.ended(A, 0.0, of_status(429, None), answered=False, sent_unix_ms=0.0)
    assert (choice.is_open(A), choice.pick("c", besides=(B,))) == (False, None)
    for now in (1.0, 2.0):
        choice.ended(A, now, None, answered=True, sent_unix_ms=0.0)
    assert [choice.pick("c", besides=(B,)) for _ in range(PLACES)] == [A] * 2 + [None]
    choice.ended(A, 3.0, of_status(429, "1"), answered=False, sent_unix_ms=0.0)
    assert choice.is_open(A), "it names its retry time"


class AnyUpstreams(RuleBasedStateMachine):
    """Requests start and end, upstreams fail and recover, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.choice, self.now, self.out = Choice([A, B], places=PLACES), 0.0, list[str]()

    @rule(conversation=st.sampled_from("abc"))
    def ask(self, conversation: str) -> None:
        free = self.choice.free
        address = self.choice.pick(conversation)
        assert (address is None) == (free == 0)
        if address is not None:
            self.out.append(address)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), failure=st.sampled_from(FAILURES))
    def end(self, data: Any, failure: UpstreamFailure | None) -> None:
        address = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        answered = failure is None and data.draw(st.booleans())
        self.choice.ended(address, self.now, failure, answered=answered, sent_unix_ms=self.now - data.draw(SENT))

    @rule(address=st.sampled_from([A, B]))
    def hear(self, address: str) -> None:
        self.choice.heard(address, self.now)

    @rule(ms=st.floats(0, 40_000), failure=st.sampled_from([None, GONE, SILENT]))
    def wait_and_probe(self, ms: float, failure: UpstreamFailure | None) -> None:
        self.now += ms
        for address in self.choice.due(self.now):
            self.choice.probed(address, self.now, failure, sent_unix_ms=self.now - 9.0)

    @invariant()
    def no_more_than_its_places(self) -> None:
        for address, each in self.choice._upstreams.items():
            assert each.running == self.out.count(address) <= PLACES
            assert each.opens_unix_ms <= self.now + MOST_WAIT_MS

    @invariant()
    def one_that_works_is_back(self) -> None:
        """After any history, a probe and some answers restore the full capacity."""
        if not self.out:
            self.now += MOST_WAIT_MS
            for address in self.choice.due(self.now):
                self.choice.probed(address, self.now, None, sent_unix_ms=self.now)
            for address in (A, B) * PLACES**2:
                taken = self.choice.pick("c", besides={A, B} - {address})
                assert taken == address
                self.choice.heard(address, self.now)
                self.choice.ended(address, self.now, None, answered=True, sent_unix_ms=self.now)
            assert self.choice.free == 2 * PLACES


TestAnyUpstreams = AnyUpstreams.TestCase
