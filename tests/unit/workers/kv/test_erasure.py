"""An erased conversation does not come back, whoever saves or loads however late."""

from shared.conversation.session_key import SessionKey
from tests.support.fakes.kv_workers import SHARED, TALK, Workers, sequence

A = SessionKey("t", "a")


async def test_an_erased_conversation_is_forgotten_at_once_and_the_shops_words_are_not(workers: Workers) -> None:
    worker = workers.start()
    await worker.turn(TALK)
    await worker.turn(TALK, session="b")
    worker.cache.erase(A, workers.redis.erase(A))
    worker.loading.available = False
    assert (await worker.restored([*TALK, 30])).computed == 8
    assert (await worker.restored([*TALK, 30], session="b")).computed == 18


async def test_a_late_save_does_not_bring_it_back(workers: Workers) -> None:
    """Asked before it was erased, ended after; what is asked after it is kept, and the late one takes nothing of it."""
    worker, other = workers.start(), workers.start()
    early = await worker.restored(TALK)
    generation = workers.redis.erase(A)
    worker.cache.erase(A, generation)
    worker.keep(early)
    assert (await worker.restored([*TALK, 30])).computed == 8
    assert (await other.restored([*TALK, 30])).kv is None
    again = sequence([*SHARED, 70, 71, 72, 73], generation=generation)
    worker.keep(again)
    worker.keep(early)
    assert (await worker.restored([*again.prompt_ids, 74])).computed == 13
    assert (await workers.start().restored([*again.prompt_ids, 74])).computed == 13


async def test_a_load_under_way_does_not_bring_it_back(workers: Workers) -> None:
    await workers.start().turn(TALK)
    worker = workers.start()
    erased = sequence([*TALK, 30])
    worker.cache.erase(A, 1)
    await worker.cache.restore(erased, first=False)
    worker.loading.available = False
    assert (await worker.restored([*TALK, 30])).computed == 8
