"""What was computed comes back as it was, and to whom it may."""

import asyncio
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from shared.conversation.session_key import SessionKey
from tests.support.fakes.kv_workers import BLOCK, SHARED, TALK, Worker, Workers, brought, sequence, truth
from tests.unit.examples import examples
from workers.schedule.prefixes import common_length

# --- what comes back


@pytest.mark.parametrize("level", ["host", "redis"])
async def test_the_next_turn_gets_all_that_was_computed_the_tail_included(workers: Workers, level: str) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    other = worker if level == "host" else workers.start()
    row = await other.restored([*TALK, 30, 31, 32])
    assert (row.computed, row.kept) == (18, 16), "a tail is exported again, with what fills its block"
    assert row.loaded == (18 if level == "redis" else 0)
    assert len(other.loading.loaded) == (5 if level == "redis" else 0)


async def test_of_a_prompt_that_is_there_whole_the_last_token_is_left_to_compute(workers: Workers) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    assert (await worker.restored(TALK)).computed == len(TALK) - 1
    assert (await worker.restored(TALK[:16])).computed == 15
    assert (await workers.start().restored(TALK)).computed == len(TALK) - 1


async def test_a_prompt_that_parts_from_what_was_said_gets_the_blocks_before(workers: Workers) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    assert (await worker.restored([*TALK[:14], 99, 98])).computed == 12
    assert (await worker.restored([99, *TALK[1:]])).kv is None


async def test_what_this_process_has_is_not_loaded_and_what_follows_it_is(workers: Workers) -> None:
    here, there = workers.start(), workers.start()
    await here.turn(TALK)
    longer = [*TALK, *range(40, 50)]
    await there.turn(longer)
    row = await here.restored([*longer, 1])
    assert (row.computed, row.loaded) == (28, 12), "from the tail's block on"


async def test_a_turn_writes_only_what_is_not_there_and_drops_the_old_tail(workers: Workers) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    before = dict(workers.redis.of())
    assert [len(before), len(workers.redis.shared)] == [3, 2]
    written = REGISTRY.get_sample_value("replyline_kv_written_bytes_total")
    assert written is not None
    await worker.turn([*TALK, 30, 31, 32])
    after = workers.redis.of()
    new = {name: value for name, value in after.items() if name not in before}
    assert (len(after), len(new)) == (4, 2), "the block that the tail became, and the new tail"
    written = (REGISTRY.get_sample_value("replyline_kv_written_bytes_total") or 0.0) - written
    assert written == sum(map(len, new.values()))


async def test_decoded_tokens_are_kept_too(workers: Workers) -> None:
    worker = workers.start()
    row = await worker.restored(TALK)
    row.output_ids = [50, 51, 52]
    worker.cache.keep(row, 0, truth([*TALK, 50, 51]))  # the last token of an answer is never computed in it
    worker.saved()
    assert (await workers.start().restored([*TALK, 50, 51, 52, 60])).computed == 20


@pytest.mark.parametrize("host_bytes", [0, 1_000])
async def test_without_host_memory_redis_alone_keeps_it(workers: Workers, host_bytes: int) -> None:
    """None, or less than a turn needs."""
    await workers.start(host_bytes=host_bytes).turn(TALK)
    assert (await workers.start().restored([*TALK, 30])).computed == 18


async def test_what_a_slot_holds_is_not_fetched(workers: Workers) -> None:
    """Unless there is more of it than there."""
    await workers.start().turn(TALK)
    worker = workers.start()
    row = await worker.restored([*TALK, 30], standing=18)
    assert (row.computed, row.kv, row.kept, worker.loading.calls.total()) == (18, None, 0, 0)
    await worker.turn(TALK)
    assert (await worker.restored([*TALK, 30], standing=7)).computed == 18


async def test_what_is_sooner_computed_than_looked_for_is_neither_fetched_nor_kept(workers: Workers) -> None:
    worker = workers.start(ms_per_token=0.01)
    row = await worker.restored(TALK)
    assert (row.computed, row.kept, worker.loading.calls.total()) == (0, sys.maxsize, 0)


# --- who may know of it


@pytest.mark.parametrize("level", ["host", "redis"])
async def test_sessions_of_a_tenant_share_the_shops_words_and_nothing_else(workers: Workers, level: str) -> None:
    """Equal words of two customers are computed for each."""
    worker = workers.start()
    await worker.turn(TALK)
    other = worker if level == "host" else workers.start()
    row = await other.restored(TALK, session="b", first=True)
    assert row.computed == 8, "full blocks: the words' last token stands in a block with the customer's"
    assert (await other.restored(TALK, tenant="u")).kv is None
    assert (await other.restored(TALK, tenant="u", session="b", first=True)).kv is None


async def test_shared_words_are_kept_once_however_many_sessions_use_them(workers: Workers) -> None:
    worker = workers.start()
    for session in "abc":
        await worker.turn([*SHARED, ord(session)], session=session)
    assert len(workers.redis.shared) == 2
    assert [len(workers.redis.of(session)) for session in "abc"] == [1, 1, 1]


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


# --- always

EVENTS = ("nothing", "nothing", "lost here", "lost in redis", "erased", "wiped", "away")
asked = st.tuples(
    st.builds(SessionKey, st.sampled_from("tu"), st.sampled_from("ab")),
    st.integers(0, 40),  # so much of what was said is remembered
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
        row = sequence(ids, session=key.session_id, tenant=key.tenant, generation=self.redis.erased.get(key, 0))
        await worker.cache.restore(row, first=not before)
        if row.kv is not None:
            assert np.array_equal(brought(row.kv, row.computed), truth(ids)[:, :, :, : row.computed])
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
