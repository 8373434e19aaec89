"""Who comes for one thing waits for those before, in their order, and for nobody else."""

import asyncio

from shared.process.keyed_locks import KeyedLocks
from tests.support.fakes.gateways import quiet


async def test_each_line_goes_on_by_itself_and_in_its_order() -> None:
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


async def test_who_gives_up_or_fails_holds_up_nobody() -> None:
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
