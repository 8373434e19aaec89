"""Tasks are started, waited for and cancelled together, and none fails unseen."""

import asyncio

import pytest

from shared.process.tasks import Tasks


async def forever() -> None:
    await asyncio.Event().wait()


async def nothing() -> None:
    pass


async def fail() -> None:
    raise LookupError("lost")


async def quiet() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_runs_until_it_is_told_to_stop() -> None:
    tasks, stop = Tasks(), asyncio.Event()
    tasks.start(forever())
    running = asyncio.create_task(tasks.run_until(stop))
    await quiet()
    assert not running.done()
    stop.set()
    await running
    await tasks.cancel()


async def test_the_failure_of_a_task_is_raised_where_all_are_watched() -> None:
    tasks = Tasks()
    tasks.start(forever())
    tasks.start(fail())
    with pytest.raises(LookupError, match="lost"):
        await tasks.run_until(asyncio.Event())
    await tasks.cancel()


async def test_a_task_that_ends_by_itself_is_forgotten() -> None:
    tasks, stop = Tasks(), asyncio.Event()
    tasks.start(nothing())
    running = asyncio.create_task(tasks.run_until(stop))
    await quiet()
    assert not tasks
    assert not running.done()
    stop.set()
    await running


async def test_a_task_that_another_starts_is_watched_as_soon_as_that_one_ends() -> None:
    tasks = Tasks()

    async def startup() -> None:
        tasks.start(fail())

    tasks.start(startup())
    with pytest.raises(LookupError):
        await tasks.run_until(asyncio.Event())


async def test_cancelling_waits_until_the_named_tasks_are_gone() -> None:
    left: list[str] = []

    async def work(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            left.append(name)

    tasks = Tasks()
    for name in ("a", "b", "c"):
        tasks.start(work(name), name)
    await quiet()
    await tasks.cancel("b", "unknown")
    assert left == ["b"]
    await tasks.cancel()
    assert sorted(left) == ["a", "b", "c"]
    await tasks.cancel()


async def test_each_failure_is_told_with_its_name_and_a_cancellation_is_not() -> None:
    told: list[tuple[str, str]] = []
    tasks = Tasks(lambda name, error: told.append((name, str(error))))
    for name, work in (("a", fail()), ("b", forever()), ("c", nothing()), ("d", fail())):
        tasks.start(work, name)
    await quiet()
    await tasks.cancel()
    assert told == [("a", "lost"), ("d", "lost")]
    assert len(tasks) == 0


async def test_a_full_group_has_room_when_one_has_ended() -> None:
    tasks, opened = Tasks(), asyncio.Event()

    async def until_opened() -> None:
        await opened.wait()

    tasks.start(until_opened())
    tasks.start(forever())
    waiting = asyncio.create_task(tasks.room(2))
    await quiet()
    assert not waiting.done()
    opened.set()
    await waiting
    assert len(tasks) == 1
    await tasks.cancel()


async def test_draining_lets_the_quick_end_and_cancels_the_rest() -> None:
    tasks, ended = Tasks(), asyncio.Event()

    async def quick() -> None:
        await asyncio.sleep(0)
        ended.set()

    tasks.start(quick())
    await tasks.drain()
    assert ended.is_set()
    stuck = tasks.start(forever())
    await tasks.drain(0)
    assert stuck.cancelled()
    assert len(tasks) == 0
