"""What others planted in Redis is never taken for ours, nor fetched."""

import pytest

from shared.conversation.session_key import shared_key
from tests.integration.support.kv_stores import MAX_VALUE_BYTES, SYSTEM, TENANT, A, B, Bench
from workers.kv.store import Held


@pytest.mark.parametrize("plant", ["set", "rpush", "sadd"])
def test_a_key_of_the_wrong_type_holds_nothing_and_is_deleted(bench: Bench, plant: str) -> None:
    name = SYSTEM + bench.session.session_id.encode()
    shared = shared_key(TENANT, name)
    getattr(bench.admin, plant)(bench.kv, "x")
    bench.admin.hset(shared, "x", "y")
    store = bench.store()
    assert store.ask(bench.session, [name]) == Held()
    assert bench.dropped == {"wrong_type": 2}
    assert bench.admin.exists(bench.kv, shared) == 0
    assert store.available


def test_a_key_that_becomes_of_the_wrong_type_is_written_over(bench: Bench) -> None:
    """Between asking and loading, or loading and saving."""
    store = bench.store()
    bench.admin.set(bench.kv, "x")
    name = SYSTEM + bench.session.session_id.encode()
    bench.admin.hset(shared_key(TENANT, name), "x", "y")
    assert store.load(bench.session, [A, B], [name]) == {}
    assert store.save(bench.session, {A: b"a" * 9}, generation=0) == 9
    assert bench.dropped == {"wrong_type": 2}
    assert store.load(bench.session, [A]) == {A: b"a" * 9}


def test_a_value_that_cannot_be_ours_is_never_fetched(bench: Bench) -> None:
    """64 MB under a name that was asked for: told by its length, deleted, and its neighbours kept."""
    name = SYSTEM + bench.session.session_id.encode()
    bench.admin.hset(bench.kv, mapping={A: b"x" * (64 << 20), B: b"b" * MAX_VALUE_BYTES, b"n" * 65: b"c"})
    bench.admin.set(shared_key(TENANT, name), b"x" * (MAX_VALUE_BYTES + 1))
    store = bench.store()
    sent = bench.admin.info("stats")["total_net_output_bytes"]
    held = store.ask(bench.session, [name])
    assert held == Held(frozenset({B}), frozenset())
    assert store.load(bench.session, [A, B], [name]) == {B: b"b" * MAX_VALUE_BYTES}
    assert bench.admin.info("stats")["total_net_output_bytes"] - sent < 100_000
    assert bench.dropped == {"oversized": 3}
    assert bench.admin.hkeys(bench.kv) == [B]


def test_a_value_that_grew_since_it_was_asked_is_passed_over(bench: Bench) -> None:
    store = bench.store()
    bench.admin.hset(bench.kv, A, b"x" * (MAX_VALUE_BYTES + 1))
    assert store.load(bench.session, [A]) == {}
    assert bench.dropped == {"oversized": 1}


def test_a_hash_with_more_names_than_a_session_can_have_is_deleted(bench: Bench) -> None:
    bench.admin.hset(bench.kv, mapping=dict.fromkeys(range(5_000), b"x"))
    assert bench.store().ask(bench.session, []) == Held()
    assert bench.dropped == {"too_many": 1}
    assert bench.admin.exists(bench.kv) == 0
