"""A flood in one bucket fills the shared room, and never the room reserved for another."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS
from workers.intake.lookahead import Lookahead

Counts = dict[Bucket, int]


def nobody() -> Counts:
    return dict.fromkeys(BUCKETS, 0)


@pytest.mark.parametrize(
    ("max_waiting", "buckets", "floods", "begun"),
    [
        (64, BUCKETS, ["short"], 48),
        (64, BUCKETS, ["short", "long"], 28),
        (64, ("short",), ["short"], 64),
        (1, BUCKETS, ["short"], 1),
        (2, BUCKETS, ["short"], 2),
        (3, BUCKETS, ["short"], 1),
        (8, BUCKETS, ["short"], 6),
    ],
)
def test_a_flood_takes_all_but_the_others_reserve_and_two_share_it(
    max_waiting: int, buckets: tuple[Bucket, ...], floods: list[Bucket], begun: int
) -> None:
    """With fewer places than buckets nothing is reserved; a worker of one bucket has all the room."""
    lookahead, waiting = Lookahead[int](buckets, max_waiting=max_waiting), dict.fromkeys(buckets, 0)
    for number in range(3 * max_waiting):
        for flood in floods:
            lookahead.park(flood, number)
    while (found := lookahead.next(waiting)) is not None:
        waiting[found[0]] += 1
    assert waiting == dict.fromkeys(buckets, 0) | dict.fromkeys(floods, begun)


def test_a_bucket_rests_from_as_many_parked_as_may_wait_until_half_are() -> None:
    lookahead = Lookahead[int](BUCKETS, max_waiting=4)
    seen = []
    for number in range(4):
        seen.append(lookahead.resting())
        lookahead.park("short", number)
    seen += [lookahead.resting(), lookahead.next(nobody()) and lookahead.resting()]
    assert seen == [frozenset()] * 4 + [frozenset({"short"})] * 2
    lookahead.next(nobody())
    assert lookahead.resting() == frozenset()


def test_what_a_rebalance_took_is_forgotten_and_the_rest_keeps_its_order() -> None:
    lookahead = Lookahead[int](BUCKETS, max_waiting=4)
    for number in range(6):
        lookahead.park("short", number)
    lookahead.drop(lambda number: number % 2 == 0)
    assert [lookahead.next(nobody()) for _ in range(4)] == [("short", 1), ("short", 3), ("short", 5), None]


class Floods(RuleBasedStateMachine):
    """Requests come, are begun, and get their slots, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.lookahead = Lookahead[int](BUCKETS, max_waiting=11)
        self.waiting = nobody()
        self.parked: dict[Bucket, list[int]] = {bucket: [] for bucket in BUCKETS}
        self.number = 0

    @rule(bucket=st.sampled_from(BUCKETS), burst=st.integers(1, 20))
    def come(self, bucket: Bucket, burst: int) -> None:
        for _ in range(burst):
            self.number += 1
            self.lookahead.park(bucket, self.number)
            self.parked[bucket].append(self.number)

    @rule()
    def begin(self) -> None:
        owed = {b for b in BUCKETS if self.parked[b] and self.waiting[b] < self.lookahead.reserve}
        found = self.lookahead.next(self.waiting)
        if found is None:
            assert not owed, "a bucket below its reserve was refused"
            return
        bucket, number = found
        assert self.parked[bucket].pop(0) == number, "in the order it was read"
        self.waiting[bucket] += 1

    @precondition(lambda self: sum(self.waiting.values()))
    @rule(data=st.data())
    def get_a_slot(self, data: st.DataObject) -> None:
        bucket = data.draw(st.sampled_from([bucket for bucket in BUCKETS if self.waiting[bucket]]))
        self.waiting[bucket] -= 1

    @invariant()
    def no_more_wait_than_may(self) -> None:
        assert sum(self.waiting.values()) <= self.lookahead.max_waiting
        assert self.lookahead.num_parked == sum(map(len, self.parked.values()))


TestFloods = Floods.TestCase
