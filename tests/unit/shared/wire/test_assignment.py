"""A group shares out its partitions evenly, keeps a conversation's partitions together, and moves as few as
possible.
"""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.wire.assignment import GroupMember, assign
from tests.unit.examples import examples

TOPICS = frozenset({"short", "medium", "long"})
Shares = dict[str, dict[str, list[int]]]


def num(partitions: int) -> dict[str, int]:
    return dict.fromkeys(TOPICS, partitions)


def going_on(shares: Shares, topics: frozenset[str] = TOPICS, since: int = 1) -> dict[str, GroupMember]:
    return {name: GroupMember(topics, held, since) for name, held in shares.items()}


def readers(shares: Shares) -> dict[tuple[str, int], str]:
    """Return each partition's reader; each has exactly one."""
    read = [(topic, number) for held in shares.values() for topic, numbers in held.items() for number in numbers]
    assert len(read) == len(set(read))
    return {
        (topic, number): name for name, held in shares.items() for topic, numbers in held.items() for number in numbers
    }


def moved(before: Shares, after: Shares) -> int:
    was, is_ = readers(before), readers(after)
    return sum(was[place] != is_[place] for place in was)


def fresh(members: int) -> dict[str, GroupMember]:
    return {f"w{number:02}": GroupMember(TOPICS) for number in range(members)}


@pytest.mark.parametrize(("members", "partitions"), [(1, 4), (3, 4), (4, 8), (7, 12), (9, 4)])
def test_every_partition_is_read_and_shares_are_even(members: int, partitions: int) -> None:
    shares = assign(num(partitions), fresh(members))
    assert readers(shares).keys() == {(topic, number) for topic in TOPICS for number in range(partitions)}
    counts = Counter(dict.fromkeys(shares, 0)) + Counter(readers(shares).values())
    sizes = [counts[name] for name in shares]
    assert max(sizes) - min(sizes) <= len(TOPICS)


@pytest.mark.parametrize("members", [2, 3, 5, 7])
def test_a_conversation_has_one_worker_in_every_bucket(members: int) -> None:
    """Its key gives the same partition number in each bucket's topic."""
    read = readers(assign(num(12), fresh(members)))
    assert all(len({read[topic, number] for topic in TOPICS}) == 1 for number in range(12))


@pytest.mark.parametrize(("members", "partitions"), [(4, 8), (4, 100), (99, 1_000)])
def test_a_joining_member_gets_its_share_and_nothing_else_moves(members: int, partitions: int) -> None:
    before = assign(num(partitions), fresh(members))
    after = assign(num(partitions), {**going_on(before), "new": GroupMember(TOPICS)})
    share = sum(map(len, after["new"].values()))
    assert partitions // (members + 1) <= share // len(TOPICS) <= math.ceil(partitions / (members + 1))
    assert moved(before, after) == share


@pytest.mark.parametrize("returned", ["a", "z"])
def test_of_two_members_that_claim_a_partition_the_later_generation_had_it_last(returned: str) -> None:
    """A member that was away for longer than its session returns with partitions that others have owned since."""
    away = GroupMember(TOPICS, {topic: [0, 1, 2, 3] for topic in TOPICS}, 1)
    stayed = {
        "w1": GroupMember(TOPICS, {topic: [0, 1] for topic in TOPICS}, 2),
        "w2": GroupMember(TOPICS, {topic: [2, 3] for topic in TOPICS}, 2),
    }
    shares = assign(num(4), {returned: away, **stayed})
    assert len(shares["w1"]["short"]) + len(shares["w2"]["short"]) == 3
    assert set(shares["w1"]["short"]) <= {0, 1}
    assert set(shares["w2"]["short"]) <= {2, 3}


@pytest.mark.parametrize(("every", "one"), [("a", "b"), ("b", "a")])
def test_a_topic_that_only_some_members_read_is_assigned_to_them(every: str, one: str) -> None:
    shares = assign(num(6), {every: GroupMember(TOPICS), one: GroupMember(frozenset({"short"}))})
    assert set(shares[one]) == {"short"}
    assert len(shares[every]["long"]) == len(shares[every]["medium"]) == 6
    assert len(shares[one]["short"]) == 6  # the other already has two topics alone


@pytest.mark.parametrize(("most", "least"), [("a", "b"), ("b", "a")])
def test_a_partition_number_stays_with_the_reader_of_most_topics(most: str, least: str) -> None:
    """Its topics had different readers while they had different partition counts."""
    held = {most: {"short": [0], "medium": [0]}, least: {"long": [0]}}
    shares = assign(num(2), {name: GroupMember(TOPICS, topics, 1) for name, topics in held.items()})
    assert shares[most]["long"] == [0]
    assert shares[least]["short"] == [1]


def test_unread_topics_and_unknown_members_are_left_out() -> None:
    assert assign({"short": 2, "other": 3}, {"w": GroupMember(TOPICS)}) == {"w": {"short": [0, 1]}}
    assert assign(num(2), {}) == {}


SUBSCRIPTIONS = st.sets(st.sampled_from(sorted(TOPICS)), min_size=1).map(frozenset)


@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.sampled_from("abcdefg"), SUBSCRIPTIONS, min_size=1),
    st.fixed_dictionaries(dict.fromkeys(sorted(TOPICS), st.integers(0, 9))),
)
def test_without_a_change_nothing_moves(topics: dict[str, frozenset[str]], partitions: dict[str, int]) -> None:
    shares = assign(partitions, {name: GroupMember(subscribed) for name, subscribed in topics.items()})
    again = {name: GroupMember(topics[name], held, 1) for name, held in shares.items()}
    assert assign(partitions, dict(reversed(again.items()))) == shares
    expected = {
        (t, n) for t, number in partitions.items() for n in range(number) if any(t in s for s in topics.values())
    }
    read = readers(shares)
    assert read.keys() == expected
    assert all(topic in topics[name] for (topic, _), name in read.items())


@settings(max_examples=examples(200))
@given(st.integers(4, 60), st.permutations(["w00", "w01", "new-a", "new-b"]))
def test_scaling_from_two_workers_to_four_and_back_moves_the_minimum(partitions: int, order: list[str]) -> None:
    """A worker keeps as many of its partitions as its new share allows, no matter which other leaves, and
    sessions with them.
    """
    two = assign(num(partitions), fresh(2))
    four = assign(num(partitions), {**going_on(two), "new-a": GroupMember(TOPICS), "new-b": GroupMember(TOPICS)})
    staying = {name: member for name, member in going_on(four, since=2).items() if name in order[:2]}
    for before, after in ((two, four), (four, assign(num(partitions), staying))):
        was, is_ = readers(before), readers(after)
        had, has = Counter(was.values()), Counter(is_.values())
        assert sum(was[place] == is_[place] for place in was) == sum(min(had[name], has[name]) for name in has)


class AnyGroup(RuleBasedStateMachine):
    """Members of one kind join, leave and continue; each assignment is even and moves the minimum for it."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: Shares = {}
        self.number = 0
        self.rounds = 0

    def share_out(self, members: dict[str, GroupMember]) -> None:
        before, self.shares = self.shares, assign(num(8), members)
        self.rounds += 1
        if not self.shares:
            return
        was, is_ = readers(before), readers(self.shares)
        kept = Counter(name for place, name in was.items() if place[0] == "long" and is_[place] == name)
        held = Counter(name for (topic, _), name in was.items() if topic == "long" and name in members)
        # As many members keep one more than the minimum as may have one more.
        least, more = divmod(8, len(members))
        over = sum(count > least for count in held.values())
        assert sum(kept.values()) == sum(min(count, least) for count in held.values()) + min(over, more)

    @rule()
    def join(self) -> None:
        self.number += 1
        self.share_out({**going_on(self.shares, since=self.rounds), f"w{self.number}": GroupMember(TOPICS)})

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.shares:
            name = data.draw(st.sampled_from(sorted(self.shares)))
            self.share_out({n: m for n, m in going_on(self.shares, since=self.rounds).items() if n != name})

    @invariant()
    def all_have_alike(self) -> None:
        sizes = [len(held.get("long", ())) for held in self.shares.values()]
        assert not sizes or (sum(sizes) == 8 and max(sizes) - min(sizes) <= 1)


TestAnyGroup = AnyGroup.TestCase
