"""Waiters for one key get the lock in order of arrival and do not wait for other keys."""

import asyncio

from shared.process.keyed_locks import KeyedLocks
from tests.support.fakes.gateways import quiet


async def test_each_key_has_its_own_queue_in_order_of_arrival() -> None:
    locks, let, done = KeyedLocks(), {name: asyncio.Event() for name in ("a1", "a2", "b1")}, list[str]()

    async def stand(name: str) -> None:
        async with locks.hold(name[0]):
            await let[name].wait()
            done.append(name)

    standing = [asyncio.create_task(stand(name)) for name in let]
    let["a2"].set()
    let["b1"].set()
    await quiet()
    assert done == ["b1"]
    assert len(locks) == 1
    let["a1"].set()
    await asyncio.gather(*standing)
    assert done == ["b1", "a1", "a2"]
    assert len(locks) == 0


async def test_a_cancelled_or_failed_holder_blocks_no_waiter() -> None:
    locks, never = KeyedLocks(), asyncio.Event()

    async def stand(event: asyncio.Event) -> str:
        async with locks.hold("a"):
            await event.wait()
            raise KeyError

    first, second = (asyncio.create_task(stand(never)) for _ in range(2))
    await quiet()
    second.cancel()
    await quiet()
    first.cancel()
    third = asyncio.create_task(stand(asyncio.Event()))
    await quiet()
    third.cancel()
    ended = await asyncio.gather(first, second, third, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert len(locks) == 0
