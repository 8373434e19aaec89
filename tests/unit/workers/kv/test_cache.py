"""Stored KV is returned unchanged, and only to its owner; a failure costs time and never an answer."""

import asyncio
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from shared.process.clock import now_unix_ms
from shared.wire.session_key import SessionKey
from tests.support.fakes.kv_workers import BLOCK, LIMIT_S, SHARED, TALK, Worker, Workers, brought, dropped, talk, truth
from tests.unit.examples import examples
from workers.kv import cache as cache_module
from workers.kv import loader, memory
from workers.schedule.prefixes import common_length

# --- blocks that are loaded again


@pytest.mark.parametrize("level", ["host", "redis"])
async def test_the_next_turn_gets_all_that_was_computed_the_tail_included(workers: Workers, level: str) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    other = worker if level == "host" else workers.start()
    row = await other.restored([*TALK, 30, 31, 32])
    assert (row.computed, row.prefix.kept) == (18, 16), "a tail is exported again, with what fills its block"
    assert row.prefix.loaded == (18 if level == "redis" else 0)
    assert len(other.loading.loaded) == (5 if level == "redis" else 0)
    assert len(workers.redis.of()) == 3
    other.keep(row)
    assert len(workers.redis.of()) == 4, "the block that the tail became and a new tail, without the old one"


async def test_of_a_prompt_as_much_is_there_as_was_said_but_its_last_token(workers: Workers) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    for ids, computed in ((TALK, 17), (TALK[:16], 15), ([*TALK[:14], 99, 98], 12), ([99, *TALK[1:]], 0)):
        assert (await worker.restored(ids)).computed == computed
    assert (await workers.start().restored(TALK)).computed == 17


async def test_what_this_process_has_is_not_loaded_and_what_follows_it_is(workers: Workers) -> None:
    here, there = workers.start(), workers.start()
    await here.turn(TALK)
    longer = [*TALK, *range(40, 50)]
    await there.turn(longer)
    row = await here.restored([*longer, 1])
    assert (row.computed, row.prefix.loaded) == (28, 12), "from the tail's block on"


async def test_what_a_slot_holds_is_not_fetched(workers: Workers) -> None:
    """Unless there is more of it than there."""
    await workers.start().turn(TALK)
    worker = workers.start()
    row = await worker.restored([*TALK, 30], standing=18)
    assert (row.computed, row.prefix.values, row.prefix.kept, worker.loading.calls.total()) == (18, None, 0, 0)
    await worker.turn(TALK)
    assert (await worker.restored([*TALK, 30], standing=7)).computed == 18


async def test_what_is_sooner_computed_than_looked_for_is_neither_fetched_nor_kept(workers: Workers) -> None:
    worker = workers.start(ms_per_token=0.01)
    row = await worker.restored(TALK)
    assert (row.computed, row.prefix.kept, worker.loading.calls.total()) == (0, sys.maxsize, 0)


# --- who may know of it


@pytest.mark.parametrize("level", ["host", "redis"])
async def test_sessions_of_a_tenant_share_the_shops_words_and_nothing_else(workers: Workers, level: str) -> None:
    """Equal words of two customers are computed for each."""
    worker = workers.start()
    await worker.turn(TALK)
    other = worker if level == "host" else workers.start()
    row = await other.restored(TALK, session="b", first=True)
    assert row.computed == 8, "full blocks: the shared text's last token is in a block with the customer's"
    assert (await other.restored(TALK, tenant="u")).prefix.values is None
    assert (await other.restored(TALK, tenant="u", session="b", first=True)).prefix.values is None


async def test_a_conversations_first_question_asks_for_shared_words_and_only_where_they_are_not_here(
    workers: Workers,
) -> None:
    await workers.start().turn(TALK)
    worker = workers.start()
    assert (await worker.restored(TALK, session="b", first=True)).computed == 8
    assert set(worker.loading.loaded) == {name for _, name in workers.redis.shared}
    assert (await worker.restored(TALK, session="c", first=True)).computed == 8
    assert worker.loading.calls["ask"] == 1, "they are here now"
    await worker.restored(TALK, session="c")
    assert worker.loading.calls["ask"] == 2


# --- what is wrong


@pytest.mark.parametrize(
    ("harm", "reason"), [(lambda value, _: value[:-1], "truncated"), (lambda _, other: other, "checksum")]
)
async def test_a_value_that_does_not_match_its_name_is_dropped_and_earlier_ones_are_used(
    workers: Workers, harm: Any, reason: str
) -> None:
    """Another name's value has the same length and is as well formed."""
    await workers.start().turn(TALK)
    third, fourth, *_ = own = workers.redis.of()  # tokens 8 to 11, 12 to 15
    own[third] = harm(own[third], own[fourth])
    first = next(iter(workers.redis.shared))
    worker, before = workers.start(), dropped(reason)
    row = await worker.restored([*TALK, 30])
    assert (row.computed, row.prefix.kept, row.prefix.loaded) == (8, 8, 8)
    assert dropped(reason) == before + 1
    assert third not in own
    worker.keep(row)
    assert (await workers.start().restored([*TALK, 30, 31])).computed == 19, "it is written again"
    workers.redis.shared[first] = harm(workers.redis.shared[first], own[fourth])
    assert (await workers.start().turn([*TALK, 30], session="b")).computed == 0
    assert (await workers.start().restored([*TALK, 30], session="c")).computed == 8, "for all of the tenant"


async def test_a_harmed_value_in_a_redis_that_goes_meanwhile(workers: Workers) -> None:
    await workers.start().turn(TALK)
    workers.redis.of()[next(iter(workers.redis.of()))] = b"x"
    worker = workers.start()
    worker.loading.broken = "drop"
    assert (await worker.restored([*TALK, 30])).computed == 8


async def test_kv_that_is_no_number_is_not_kept_and_nothing_behind_it(workers: Workers) -> None:
    worker, before = workers.start(), dropped("not_finite")
    values = truth(TALK)
    values[1, 0, 0, 13, 2] = np.nan
    worker.keep(await worker.restored(TALK), values)
    assert dropped("not_finite") == before + 1
    assert (await worker.restored([*TALK, 30])).computed == 12


@pytest.mark.parametrize(
    ("loads", "asks"),
    [([(100, 60_000.0)] * 3, 0), ([(10**n, 10.0**n) for n in range(2, 7)], 1)],
    ids=["answers", "bytes"],
)
async def test_where_loading_is_slower_than_computing_nothing_is_loaded(
    workers: Workers, loads: list[tuple[int, float]], asks: int
) -> None:
    """Where Redis' answer alone takes longer it is not even asked."""
    await workers.start().turn(TALK)
    worker = workers.start()
    for num_bytes, ms in loads:
        worker.gate.observe(num_bytes, ms, now_unix_ms())
    assert (await worker.restored([*TALK, 30])).prefix.values is None
    assert (worker.loading.calls["ask"], worker.loading.loaded) == (asks, [])


async def test_what_has_expired_here_is_loaded_or_computed(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, before, now = workers.start(ttl_s=10.0), dropped("internal"), now_unix_ms()
    monkeypatch.setattr(memory, "now_unix_ms", lambda: now)
    await worker.turn(TALK)
    now += 20_000
    assert (await worker.restored([*TALK, 30])).prefix.loaded == 18
    now += 20_000
    worker.loading.available = False
    assert (await worker.restored([*TALK, 30])).prefix.values is None
    assert dropped("internal") == before


@pytest.mark.parametrize("broken", ["ask", "load"])
async def test_a_redis_that_does_not_answer_leaves_what_is_here(workers: Workers, broken: str) -> None:
    longer = [*TALK, *range(40, 50)]
    worker = workers.start()
    await worker.turn(TALK)
    await workers.start().turn(longer)
    worker.loading.broken = broken
    assert (await worker.restored([*longer, 1])).computed == 18
    assert not worker.loading.available
    calls = worker.loading.calls.total()
    assert (await worker.restored([*longer, 1])).computed == 18
    assert worker.loading.calls.total() == calls, "it is left alone"


@pytest.mark.parametrize("broken", ["ask", "save", None])
async def test_a_save_that_fails_leaves_it_in_this_process(workers: Workers, broken: str | None) -> None:
    """Counted where it was tried. With a Redis that was gone before nothing is."""
    worker, before = workers.start(), dropped("unavailable")
    worker.saving.broken = broken
    worker.saving.available = broken is not None
    await worker.turn(TALK)
    assert dropped("unavailable") - before == (1 if broken else 0)
    assert (await worker.restored([*TALK, 30])).computed == 18
    assert not workers.redis.of()


async def test_a_fault_of_our_own_is_counted_and_the_next_prompt_is_fetched(workers: Workers) -> None:
    await workers.start().turn(TALK)
    worker, before = workers.start(), dropped("internal")
    worker.loading.fault = worker.saving.fault = KeyError("ours")
    with capture_logs():
        row = await worker.restored([*TALK, 30])
        assert (row.computed, row.prefix.values) == (0, None)
        worker.keep(row)
    assert dropped("internal") == before + 2
    worker.loading.fault = worker.saving.fault = None
    assert (await worker.restored([*TALK, 30, 31])).computed == 19


async def test_what_waits_to_be_written_is_bounded(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """While writing hangs the engine's thread continues, and KV without room is not stored."""
    monkeypatch.setattr(cache_module, "_MOST_UNSAVED_BYTES", 2 * truth(TALK).nbytes)
    worker, before, go = workers.start(), dropped("backlog"), threading.Event()
    worker.cache._saves.submit(lambda: go.wait(LIMIT_S))
    for session in "abcd":
        worker.cache.keep(talk(TALK, session=session), 0, truth(TALK))
    assert dropped("backlog") == before + 2
    go.set()
    worker.saved()
    assert [(await worker.restored([*TALK, 1], session=s)).computed for s in "abcd"] == [18, 18, 8, 8]
    await worker.turn(TALK, session="c")
    assert (await worker.restored([*TALK, 1], session="c")).computed == 18, "there is room again"
    assert dropped("backlog") == before + 2


async def test_what_waits_for_slots_is_bounded(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that prompts are computed until a slot or a waiting request is released."""
    monkeypatch.setattr(loader, "_LEAST_WAITING_BYTES", 2 * truth(TALK).nbytes)
    for session in "abc":
        await workers.start().turn(TALK, session=session)
    worker, before = workers.start(host_bytes=0), dropped("waiting")
    rows = [await worker.restored([*TALK, 1], session=session) for session in "abc"]
    assert [(row.computed, row.prefix.values is None) for row in rows] == [(18, False), (18, False), (0, True)]
    rows[0].prefix.values = None
    assert (await worker.restored([*TALK, 1], session="c")).computed == 18
    assert dropped("waiting") == before + 1


# --- erasure

A = SessionKey("t", "a")


async def test_an_erased_conversation_is_forgotten_at_once_and_the_shops_words_are_not(workers: Workers) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    await worker.turn(TALK, session="b")
    worker.cache.erase(A, workers.redis.erase(A))
    worker.loading.available = False
    assert (await worker.restored([*TALK, 30])).computed == 8
    assert (await worker.restored([*TALK, 30], session="b")).computed == 18


async def test_a_worker_that_starts_after_an_erasure_holds_nothing_of_what_it_computes_late(workers: Workers) -> None:
    early = await workers.start().restored(TALK)
    workers.redis.erase(A)
    worker = workers.start()
    worker.keep(early)
    assert (await worker.restored([*TALK, 30])).computed == 8


async def test_a_late_save_does_not_bring_it_back(workers: Workers) -> None:
    """Asked before it was erased, ended after; what is asked after it is kept, and the late one takes nothing of it."""
    worker, other = workers.start(), workers.start()
    early = await worker.restored(TALK)
    generation = workers.redis.erase(A)
    worker.cache.erase(A, generation)
    worker.keep(early)
    assert (await worker.restored([*TALK, 30])).computed == 8
    assert (await other.restored([*TALK, 30])).prefix.values is None
    again = talk([*SHARED, 70, 71, 72, 73], generation=generation)
    worker.keep(again)
    worker.keep(early)
    assert (await worker.restored([*again.prompt_ids, 74])).computed == 13
    assert (await workers.start().restored([*again.prompt_ids, 74])).computed == 13


async def test_a_load_under_way_does_not_bring_it_back(workers: Workers) -> None:
    await workers.start().turn(TALK)
    worker = workers.start()
    erased = talk([*TALK, 30])
    worker.cache.erase(A, 1)
    erased.begin_with(await worker.cache.find(erased, first=False))
    worker.loading.available = False
    assert (await worker.restored([*TALK, 30])).computed == 8


# --- always

EVENTS = ("nothing", "nothing", "lost here", "lost in redis", "erased", "wiped", "away")
asked = st.tuples(
    st.builds(SessionKey, st.sampled_from("tu"), st.sampled_from("ab")),
    st.integers(0, 40),  # how many earlier tokens are cached
    st.lists(st.integers(1, 3), min_size=1, max_size=9),
    st.integers(0, 1),  # which worker
    st.sampled_from(EVENTS),
)


class Talk:
    """Conversations on two workers, and what was computed in each."""

    def __init__(self, workers: Workers) -> None:
        self.redis = workers.redis
        self.both = [workers.start(), workers.start()]
        self.computed: dict[SessionKey, list[list[int]]] = {}
        self.tenants: set[str] = set()

    def happen(self, event: str, key: SessionKey, worker: Worker) -> None:
        """Every third of the blocks is lost, from another one on each time."""
        for each in self.both:
            each.loading.available = each.saving.available = event != "away"
        if event == "lost here":
            for name in [*worker.host._entries][len(self.computed) % 3 :: 3]:
                worker.host._drop(name)
        elif event == "lost in redis":
            for name in [*self.redis.of(key.session_id, key.tenant)][len(self.computed) % 3 :: 3]:
                del self.redis.sessions[key][name]
        elif event == "erased":
            self.computed.pop(key, None)
            generation = self.redis.erase(key)
            for each in self.both:
                each.cache.erase(key, generation)
        elif event == "wiped":
            self.redis.sessions.clear()
            self.redis.shared.clear()

    async def ask(self, key: SessionKey, worker: Worker, remembered: int, words: list[int]) -> None:
        before = self.computed.get(key, [])
        ids = [*(before[-1] if before else SHARED)[: len(SHARED) + remembered], *words]
        row = talk(ids, session=key.session_id, tenant=key.tenant, generation=self.redis.erased.get(key, 0))
        row.begin_with(await worker.cache.find(row, first=not before))
        if row.prefix.values is not None:
            assert np.array_equal(brought(row.prefix.values, row.computed), truth(ids)[:, :, :, : row.computed])
        own = max((common_length(ids, other) for other in before), default=0)
        shops = len(SHARED) // BLOCK * BLOCK if key.tenant in self.tenants else 0
        assert row.computed <= max(own, shops)
        assert row.computed < len(ids)
        worker.keep(row)
        self.computed.setdefault(key, []).append(ids)
        self.tenants.add(key.tenant)


@settings(max_examples=examples(60))
@given(st.lists(asked, max_size=12))
def test_whatever_happens_what_comes_back_was_computed_for_those_who_may_know(
    asked: list[tuple[SessionKey, int, list[int], int, str]],
) -> None:
    """Two workers on one Redis; blocks are lost here and there, conversations erased and cut. No more comes back than
    was computed in the conversation, or of the shop's words for the tenant, and it is what was computed."""

    async def run(talk: Talk) -> None:
        for key, remembered, words, which, event in asked:
            talk.happen(event, key, talk.both[which])
            await talk.ask(key, talk.both[which], remembered, words)

    workers = Workers()
    try:
        asyncio.run(run(Talk(workers)))
    finally:
        workers.close()
