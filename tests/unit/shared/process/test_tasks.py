"""Long-running tasks are started and cancelled by name, and none fails unseen."""

import asyncio

import pytest

from shared.process.tasks import TaskSet


async def forever() -> None:
    await asyncio.Event().wait()


async def quiet() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_it_runs_until_it_is_told_to_stop() -> None:
    tasks, stop = TaskSet(), asyncio.Event()
    tasks.start("work", forever())
    running = asyncio.create_task(tasks.run_until(stop))
    await quiet()
    assert not running.done()
    stop.set()
    await running
    await tasks.cancel()


async def test_the_failure_of_a_task_is_raised_where_all_are_watched() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    tasks = TaskSet()
    tasks.start("work", forever())
    tasks.start("broken", fail())
    with pytest.raises(LookupError, match="lost"):
        await tasks.run_until(asyncio.Event())
    await tasks.cancel()


async def test_a_task_that_ends_by_itself_is_forgotten() -> None:
    ended = asyncio.Event()

    async def end() -> None:
        ended.set()

    tasks, stop = TaskSet(), asyncio.Event()
    tasks.start("short", end())
    running = asyncio.create_task(tasks.run_until(stop))
    await quiet()
    assert ended.is_set()
    assert not running.done()
    stop.set()
    await running


async def test_a_task_that_another_starts_is_watched_as_soon_as_that_one_ends() -> None:
    async def fail() -> None:
        raise LookupError("lost")

    tasks = TaskSet()

    async def startup() -> None:
        tasks.start("later", fail())

    tasks.start("startup", startup())
    with pytest.raises(LookupError):
        await tasks.run_until(asyncio.Event())
    await tasks.cancel()


async def test_cancelling_waits_until_the_named_tasks_are_gone() -> None:
    left: list[str] = []

    async def work(name: str) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            left.append(name)

    tasks = TaskSet()
    for name in ("a", "b", "c"):
        tasks.start(name, work(name))
    await quiet()
    await tasks.cancel("b", "unknown")
    assert left == ["b"]
    await tasks.cancel()
    assert sorted(left) == ["a", "b", "c"]
    await tasks.cancel()
