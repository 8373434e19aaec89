"""A cancel that comes before its request counts for two minutes, at any rate that a fleet's cancels come at."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.wire.messages import Cancel, ChatRequest
from tests.unit.examples import examples
from workers.request.recent_answers import RecentCancels

MINUTES_MS = 120_000.0
SLICE_MS = 10_000.0


def requested(partition: int | None = 1, created: int | None = 5, request_id: str = "r") -> ChatRequest:
    return ChatRequest(id=request_id, session_id="s", input="hi", reply_partition=partition, created_unix_ms=created)


def cancel(partition: int | None = 1, created: int | None = 5, request_id: str = "r") -> Cancel:
    return Cancel(request_id=request_id, reply_partition=partition, created_unix_ms=created)


def test_a_thousand_a_second_count_for_two_minutes_each() -> None:
    cancelled, forgotten = RecentCancels(), 0
    for number in range(121_000):
        forgotten += cancelled.add(cancel(request_id=str(number)), float(number))
    assert forgotten == 0
    assert all(cancelled.pop(requested(request_id=str(number)), 121_000.0) for number in range(1_000, 121_000, 500))


def test_where_there_is_no_room_the_oldest_are_forgotten_and_counted() -> None:
    cancelled = RecentCancels(capacity=3)
    times = {"a": 0.0, "b": 1.0, "c": SLICE_MS, "d": SLICE_MS + 1}
    forgotten = [cancelled.add(cancel(request_id=request_id), now) for request_id, now in times.items()]
    assert (forgotten, len(cancelled)) == ([0, 0, 0, 2], 2)
    assert [cancelled.pop(requested(request_id=request_id), SLICE_MS + 1) for request_id in "abcd"] == [
        False,
        False,
        True,
        True,
    ]


class AnyCancels(RuleBasedStateMachine):
    """Cancels and requests in any order: what the two minutes say is so, and what the eleven slices say at most."""

    def __init__(self) -> None:
        super().__init__()
        self.cancels, self.now = RecentCancels(), 1e12
        self.told: dict[Cancel, float] = {}

    @rule(later=st.sampled_from([0.0, 1.0, 9_999.0, 10_000.0, 60_000.0, 130_001.0]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule(name=st.sampled_from("ab"), partition=st.none() | st.integers(0, 1), created=st.none() | st.integers(0, 1))
    def stop(self, name: str, partition: int | None, created: int | None) -> None:
        told = cancel(partition, created, name)
        self.told[told] = self.now
        assert self.cancels.add(told, self.now) == 0

    @rule(name=st.sampled_from("ab"), partition=st.none() | st.integers(0, 1), created=st.none() | st.integers(0, 1))
    def ask(self, name: str, partition: int | None, created: int | None) -> None:
        meant = {cancel(p, c, name) for p in {None, partition} for c in {None, created}}
        ages = [self.now - at for told in meant if (at := self.told.pop(told, None)) is not None]
        taken = self.cancels.pop(requested(partition, created, name), self.now)
        assert taken >= any(age <= MINUTES_MS for age in ages)
        assert taken <= any(age <= MINUTES_MS + SLICE_MS for age in ages)

    @invariant()
    def its_size_is_right(self) -> None:
        assert len(self.cancels) == sum(len(names) for _, names in self.cancels._slices)


AnyCancels.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestAnyCancels = AnyCancels.TestCase
