"""A key's node is found as a Redis Cluster finds it; redis-py's own table is the authority for slots."""

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from shared.conversation.session_key import SessionKey
from shared.redis.slots import Node, SlotMap, slot_of

A, B, C = (Node("10.0.0.1", port) for port in (7000, 7001, 7002))
TOLD = [
    [0, 5_460, [b"10.0.0.1", 7000, b"id", []], [b"10.0.0.9", 7009, b"id", []]],
    [5_461, 10_922, ["10.0.0.1", 7001, "id"]],
    [10_923, 16_383, [b"", 7002, b"id"]],
]


@given(st.text(alphabet="ab{}:/", max_size=12) | st.text(max_size=20))
def test_a_key_has_the_slot_that_redis_gives_it(key: str) -> None:
    assert slot_of(key) == key_slot(key.encode())


@given(st.text(alphabet="ab.", min_size=1), st.text(alphabet="ab{}"))
def test_all_keys_of_a_session_have_one_slot(tenant: str, session_id: str) -> None:
    session = SessionKey(tenant, session_id)
    assert len({slot_of(session.of(what)) for what in ("turns", "erased", "kv", "handoff")}) == 1


def key_in(first: int, last: int) -> str:
    return next(key for number in range(10**6) if first <= slot_of(key := f"k{number}") <= last)


def test_until_it_is_told_everything_is_the_seeds() -> None:
    slots = SlotMap(A)
    assert {slots.of(f"k{number}") for number in range(100)} == {A}
    assert list(slots.nodes()) == [A]


def test_the_masters_of_each_range_are_learnt() -> None:
    """One that does not know its own name is the one that was asked."""
    slots = SlotMap(Node("seed", 1))
    slots.learn(TOLD, Node("10.0.0.1", 7002))
    assert [slots.of(key_in(*each[:2])) for each in TOLD] == [A, B, C]
    assert list(slots.nodes()) == [A, B, C]


def test_a_slot_that_moved_is_its_new_nodes_and_no_other_is() -> None:
    slots = SlotMap(A)
    slots.learn(TOLD, A)
    moved, stays = key_in(0, 100), key_in(101, 5_460)
    slots.moved(slot_of(moved), C)
    assert (slots.of(moved), slots.of(stays)) == (C, A)
