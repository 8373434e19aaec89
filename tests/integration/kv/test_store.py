"""Blocks of KV on a real Redis: written and found again."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.wire.session_key import SessionKey, shared_key
from tests.integration.support.kv_stores import FAQ, MAX_VALUE_BYTES, SYSTEM, TENANT, A, B, Bench, C, load
from workers.kv.store import Held


def test_the_maximum_number_and_size_of_blocks_is_stored(bench: Bench) -> None:
    """This many names, one of them the longest, and the longest possible values."""
    store, longest, value = bench.store(ttl_s=600), b"n" * 64, b"v" * MAX_VALUE_BYTES
    shared = {SYSTEM + bench.session.session_id.encode(): value}
    assert store.ask(bench.session, [*shared]) == Held(), "another session has nothing"
    assert load(store, bench.session, [longest], [*shared]) == load(store, bench.session, [], []) == {}
    assert bench.admin.exists(bench.kv) == 0
    store.save(bench.session, {longest: value}, shared=shared, generation=0)
    bench.admin.hset(bench.kv, mapping={number.to_bytes(16, "big"): b"" for number in range(4_095)})
    held = store.ask(bench.session, [*shared])
    assert (len(held.session_names), longest in held.session_names) == (4_096, True)
    assert held.shared_names == frozenset(shared)
    assert load(store, bench.session, [longest], [*shared]) == {longest: value} | shared
    assert not bench.dropped


def test_another_worker_finds_saved_blocks_byte_for_byte(bench: Bench) -> None:
    """Names and values are any bytes: line ends, zeros, bytes that are no text."""
    blocks = {A: b"\r\n\x00\xff" * 100, B: b"", C: bytes(range(256)), b"*3\r\n$": b"$-1\r\n"}
    shared = {SYSTEM + bench.session.session_id.encode(): b"s" * 700}
    written = bench.store().save(bench.session, blocks, shared=shared, generation=0)
    assert written == sum(map(len, (blocks | shared).values()))
    other = bench.store()
    assert other.ask(bench.session, [FAQ, *shared]) == Held(frozenset(blocks), frozenset(shared))
    assert load(other, bench.session, [*blocks], [*shared]) == blocks | shared
    assert load(other, bench.session, [C, b"gone"], [FAQ]) == {C: blocks[C]}


def test_a_save_larger_than_a_transaction_is_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several transactions, still one round trip, and the pieces of a value arrive in order."""
    blocks = {n.to_bytes(16, "big"): bytes([n]) * 700_000 + b"end" for n in range(20)}
    store = bench.store()
    monkeypatch.setattr(store, "_max_value_bytes", 1_000_000)
    assert store.save(bench.session, blocks, generation=0) == 20 * 700_003
    assert load(store, bench.session, [*blocks]) == blocks


def commands(bench: Bench, act: Callable[[], Any]) -> Counter[str]:
    """Return how often Redis ran each command, by name, including those within scripts."""
    bench.admin.config_resetstat()
    act()
    stats = bench.admin.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()})


def test_a_second_turn_writes_only_its_own_blocks(bench: Bench) -> None:
    """Existing blocks are not sent again; blocks that left the chain are deleted; shared ones that another
    wrote stay.
    """
    store = bench.store()
    shared = {SYSTEM + bench.session.session_id.encode(): b"first"}
    store.save(bench.session, {A: b"a" * 500, B: b"tail"}, shared=shared, generation=0)

    def turn() -> int:
        again = dict.fromkeys(shared, b"second")
        return store.save(bench.session, {C: b"c" * 300}, drop=[B, b"not there"], shared=again, generation=0)

    written: list[int] = []
    counts = commands(bench, lambda: written.append(turn()))
    assert written == [300]
    assert (counts["hset"], counts["multi"], counts["set"]) == (1, 1, 1)
    assert bench.admin.hgetall(bench.kv) == {A: b"a" * 500, C: b"c" * 300}
    assert load(store, bench.session, [], [*shared]) == shared
    assert store.save(bench.session, {}, drop=[A], generation=0) == 0
    assert store.ask(bench.session, []).session_names == {C}
    assert commands(bench, lambda: store.save(bench.session, {}, generation=0))["multi"] == 0


def test_every_use_extends_the_blocks_lifetime(bench: Bench) -> None:
    shared = {SYSTEM + bench.session.session_id.encode(): b"s"}
    keys = [bench.kv, shared_key(TENANT, *shared)]
    bench.store(ttl_s=900).save(bench.session, {A: b"a"}, shared=shared, generation=0)
    assert all(880 < bench.admin.ttl(key) <= 900 for key in keys)
    bench.store().ask(bench.session, [*shared])
    assert all(3_580 < bench.admin.ttl(key) <= 3_600 for key in keys)
    bench.store(ttl_s=60).save(bench.session, {B: b"b"}, generation=0)
    assert 50 < bench.admin.ttl(bench.kv) <= 60


def test_a_drop_removes_only_the_sessions_blocks(bench: Bench) -> None:
    store = bench.store()
    other = SessionKey(TENANT, bench.session.session_id + "-other")
    shared = {SYSTEM + bench.session.session_id.encode(): b"s"}
    for session in (bench.session, other):
        store.save(session, {A: b"a"}, shared=shared, generation=0)
    store.drop(bench.session, [A])
    assert store.ask(bench.session, [*shared]) == Held(frozenset(), frozenset(shared))
    assert store.ask(other, []).session_names == {A}


async def test_an_erased_session_is_not_restored_by_a_late_save(bench: Bench) -> None:
    """However late the save comes; texts after the erasure are stored again."""
    store, session, history = bench.store(), bench.session, History(bench.settings, kv=bench.settings)
    await history.append(
        SessionKey(TENANT, session.session_id),
        Turn(request_id="r1", user="q", output_text="a", source="model", asked_unix_ms=1),
    )
    store.save(session, {A: b"a"}, generation=0)
    generation = await history.delete(SessionKey(TENANT, session.session_id), generation=7)
    await history.close()
    assert bench.admin.keys(session.redis_key("*")) == [session.redis_key("erased").encode()]

    assert store.save(session, {A: b"a", B: b"b" * 900}, drop=[C], generation=generation - 1) is None
    assert bench.admin.exists(bench.kv) == 0
    assert store.save(session, {C: b"c" * 7}, generation=generation) == 7
    assert store.save(session, {A: b"a"}, generation=0) is None
    assert store.ask(session, []).session_names == {C}


# --- foreign data is never taken as ours, nor fetched


@pytest.mark.parametrize("plant", ["set", "rpush", "sadd"])
def test_a_key_of_the_wrong_type_counts_as_empty_and_is_deleted(bench: Bench, plant: str) -> None:
    name = SYSTEM + bench.session.session_id.encode()
    shared = shared_key(TENANT, name)
    getattr(bench.admin, plant)(bench.kv, "x")
    bench.admin.hset(shared, "x", "y")
    store = bench.store()
    assert store.ask(bench.session, [name]) == Held()
    assert bench.dropped == {"wrong_type": 2}
    assert bench.admin.exists(bench.kv, shared) == 0
    assert store.available


def test_a_key_that_changes_to_the_wrong_type_is_overwritten(bench: Bench) -> None:
    """It changes between lookup and load, or between load and save."""
    store = bench.store()
    bench.admin.set(bench.kv, "x")
    name = SYSTEM + bench.session.session_id.encode()
    bench.admin.hset(shared_key(TENANT, name), "x", "y")
    assert load(store, bench.session, [A, B], [name]) == {}
    assert store.save(bench.session, {A: b"a" * 9}, generation=0) == 9
    assert bench.dropped == {"wrong_type": 2}
    assert load(store, bench.session, [A]) == {A: b"a" * 9}


def test_a_value_of_an_impossible_size_is_never_fetched(bench: Bench) -> None:
    """64 MB under a requested name: detected by its length, deleted, and its neighbours stay."""
    name = SYSTEM + bench.session.session_id.encode()
    bench.admin.hset(bench.kv, mapping={A: b"x" * (64 << 20), B: b"b" * MAX_VALUE_BYTES, b"n" * 65: b"c"})
    bench.admin.set(shared_key(TENANT, name), b"x" * (MAX_VALUE_BYTES + 1))
    store = bench.store()
    sent = bench.admin.info("stats")["total_net_output_bytes"]
    held = store.ask(bench.session, [name])
    assert held == Held(frozenset({B}), frozenset())
    assert load(store, bench.session, [A, B], [name]) == {B: b"b" * MAX_VALUE_BYTES}
    assert bench.admin.info("stats")["total_net_output_bytes"] - sent < 100_000
    assert bench.dropped == {"oversized": 3}
    assert bench.admin.hkeys(bench.kv) == [B]
    bench.admin.hset(bench.kv, A, b"x" * (MAX_VALUE_BYTES + 1))
    assert load(store, bench.session, [A]) == {}, "nor one that grew after the lookup"
    assert bench.dropped == {"oversized": 4}


def test_a_hash_with_more_names_than_a_session_can_have_is_deleted(bench: Bench) -> None:
    bench.admin.hset(bench.kv, mapping=dict.fromkeys(range(5_000), b"x"))
    assert bench.store().ask(bench.session, []) == Held()
    assert bench.dropped == {"too_many": 1}
    assert bench.admin.exists(bench.kv) == 0
