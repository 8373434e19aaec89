"""Whatever goes wrong beside the cache costs the tokens' computation and never an answer."""

import asyncio
import threading

import pytest

from shared.process.clock import now_unix_ms
from tests.support.fakes.kv_workers import LIMIT_S, TALK, Workers, dropped, sequence, truth
from workers.kv import cache as cache_module


async def test_what_has_expired_here_is_loaded_or_computed(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, before, now = workers.start(ttl_s=10.0), dropped("internal"), now_unix_ms()
    monkeypatch.setattr(cache_module, "now_unix_ms", lambda: now)
    await worker.turn(TALK)
    now += 20_000
    assert (await worker.restored([*TALK, 30])).loaded == 18
    now += 20_000
    worker.loading.available = False
    assert (await worker.restored([*TALK, 30])).kv is None
    assert dropped("internal") == before


async def test_where_loading_is_slow_nothing_is_loaded_nor_asked(workers: Workers) -> None:
    await workers.start().turn(TALK)
    worker = workers.start()
    for _ in range(3):
        worker.gate.observe(100, 60_000.0, now_unix_ms())
    assert (await worker.restored([*TALK, 30])).kv is None
    assert worker.loading.calls.total() == 0


async def test_blocks_slower_to_load_than_to_compute_are_left(workers: Workers) -> None:
    """Redis is asked, for its answer alone takes no time, and what it has is too large for the way."""
    await workers.start().turn(TALK)
    worker = workers.start()
    for size in (100, 1_000, 10_000, 100_000, 1_000_000):
        worker.gate.observe(size, float(size), now_unix_ms())
    assert (await worker.restored([*TALK, 30])).kv is None
    assert worker.loading.calls["ask"] == 1
    assert worker.loading.loaded == []


@pytest.mark.parametrize("broken", ["ask", "load"])
async def test_a_redis_that_does_not_answer_leaves_what_is_here(workers: Workers, broken: str) -> None:
    longer = [*TALK, *range(40, 50)]
    await workers.start().turn(longer)
    worker = workers.start()
    await worker.turn(TALK)
    worker.loading.broken = broken
    assert (await worker.restored([*longer, 1])).computed == 18
    assert not worker.loading.available
    calls = worker.loading.calls.total()
    assert (await worker.restored([*longer, 1])).computed == 18
    assert worker.loading.calls.total() == calls, "it is left alone"


async def test_a_harmed_value_in_a_redis_that_goes_meanwhile(workers: Workers) -> None:
    await workers.start().turn(TALK)
    third = next(iter(workers.redis.of()))
    workers.redis.of()[third] = b"x"
    worker = workers.start()
    worker.loading.broken = "drop"
    assert (await worker.restored([*TALK, 30])).computed == 8


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
    row = await worker.restored([*TALK, 30])
    assert (row.computed, row.kv) == (0, None)
    worker.keep(row)
    assert dropped("internal") == before + 2
    worker.loading.fault = worker.saving.fault = None
    assert (await worker.restored([*TALK, 30, 31])).computed == 19


async def test_what_waits_to_be_written_is_bounded(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the writing hangs the engine's thread goes on, and what there is no room for is not kept."""
    monkeypatch.setattr(cache_module, "_MOST_UNSAVED_BYTES", 2 * truth(TALK).nbytes)
    worker, before, go = workers.start(), dropped("backlog"), threading.Event()
    worker.cache._saves.submit(lambda: go.wait(LIMIT_S))
    for session in "abcd":
        worker.cache.keep(sequence(TALK, session=session), 0, truth(TALK))
    assert dropped("backlog") == before + 2
    go.set()
    worker.saved()
    assert [(await worker.restored([*TALK, 1], session=s)).computed for s in "abcd"] == [18, 18, 8, 8]
    await worker.turn(TALK, session="c")
    assert (await worker.restored([*TALK, 1], session="c")).computed == 18, "there is room again"
    assert dropped("backlog") == before + 2


async def test_what_waits_for_slots_is_bounded(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that the prompts are computed, until somebody has its slot or leaves."""
    monkeypatch.setattr(cache_module, "_LEAST_WAITING_BYTES", 2 * truth(TALK).nbytes)
    for session in "abc":
        await workers.start().turn(TALK, session=session)
    worker, before = workers.start(host_bytes=0), dropped("waiting")
    rows = [await worker.restored([*TALK, 1], session=session) for session in "abc"]
    assert [(row.computed, row.kv is None) for row in rows] == [(18, False), (18, False), (0, True)]
    rows[0].kv = None
    assert (await worker.restored([*TALK, 1], session="c")).computed == 18
    assert dropped("waiting") == before + 1


async def test_where_the_host_memory_may_hold_more_as_much_may_wait(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is in it already is not kept again by who has to compute it."""
    monkeypatch.setattr(cache_module, "_LEAST_WAITING_BYTES", 0)
    worker = workers.start(host_bytes=4 * truth(TALK).nbytes)
    await worker.turn(TALK)
    rows = [await worker.restored([*TALK, 1]) for _ in range(5)]
    assert [(row.computed, row.kept) for row in rows] == [(18, 16)] * 4 + [(0, 16)]


async def test_a_fetch_waits_for_no_write(workers: Workers) -> None:
    worker, go = workers.start(), threading.Event()
    await worker.turn(TALK)
    worker.cache._saves.submit(lambda: go.wait(LIMIT_S))
    assert (await worker.restored([*TALK, 30])).computed == 18
    go.set()


async def test_closing_writes_what_is_to_be_kept(workers: Workers) -> None:
    worker, go = workers.start(), threading.Event()
    worker.cache._saves.submit(lambda: go.wait(LIMIT_S))
    worker.cache.keep(sequence(TALK), 0, truth(TALK))
    go.set()
    await asyncio.to_thread(worker.cache.close)
    assert len(workers.redis.of()) == 3
