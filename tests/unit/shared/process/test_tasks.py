"""Tasks are started, awaited and cancelled as a group, and no failure passes unseen."""

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest

from shared.errors import StoreUnavailable
from shared.kafka.broker.connection import stop_consumer
from shared.process.lifetime import Stopped, until_stopped
from shared.process.tasks import Tasks
from shared.redis.calls import RedisCalls
from shared.settings.redis import RedisSettings


async def forever() -> None:
    await asyncio.Event().wait()


async def nothing() -> None:
    pass


async def fail() -> None:
    raise LookupError("lost")


async def quiet() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_task_runs_until_it_is_stopped() -> None:
    tasks, stop = Tasks(), asyncio.Event()
    tasks.start(forever())
    running = asyncio.create_task(tasks.run_until(stop))
    await quiet()
    assert not running.done()
    stop.set()
    await running
    await tasks.cancel()


async def test_a_tasks_failure_is_raised_where_the_group_is_watched() -> None:
    tasks = Tasks()
    tasks.start(forever())
    tasks.start(fail())
    with pytest.raises(LookupError, match="lost"):
        await tasks.run_until(asyncio.Event())
    await tasks.cancel()


async def test_a_finished_task_is_removed() -> None:
    tasks, stop = Tasks(), asyncio.Event()
    tasks.start(nothing())
    running = asyncio.create_task(tasks.run_until(stop))
    await quiet()
    assert not tasks
    assert not running.done()
    stop.set()
    await running


async def test_a_task_started_by_another_is_watched_when_that_one_ends() -> None:
    tasks = Tasks()

    async def startup() -> None:
        tasks.start(fail())

    tasks.start(startup())
    with pytest.raises(LookupError):
        await tasks.run_until(asyncio.Event())


async def test_cancel_waits_until_the_named_tasks_have_ended() -> None:
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


async def test_each_failure_is_reported_with_its_name_and_a_cancellation_is_not() -> None:
    told: list[tuple[str, str]] = []
    tasks = Tasks(lambda name, error: told.append((name, str(error))))
    for name, work in (("a", fail()), ("b", forever()), ("c", nothing()), ("d", fail())):
        tasks.start(work, name)
    await quiet()
    await tasks.cancel()
    assert told == [("a", "lost"), ("d", "lost")]
    assert len(tasks) == 0


async def test_a_full_group_accepts_a_task_after_one_has_ended() -> None:
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


async def test_drain_lets_short_tasks_finish_and_cancels_the_rest() -> None:
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


class Library:
    """Raises its own error when it is cancelled, as redis-py does. `stop` is that of a consumer."""

    async def stop(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise TimeoutError("nothing was read") from None

    _client: Any = None

    async def close(self) -> None: ...


async def call_redis(library: Library) -> None:
    with suppress(StoreUnavailable):
        await RedisCalls(RedisSettings(timeout_ms=1), logs_outages=False).bounded(library.stop())


async def stop_reading(library: Library) -> None:
    library._client = library
    consumer: Any = library
    await stop_consumer(consumer, limit_s=0.001)


async def end_early(library: Library) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, stop.set)
    with suppress(Stopped):
        await until_stopped(stop, library.stop())


@pytest.mark.parametrize("use", [call_redis, stop_reading, end_early])
async def test_an_abandoned_calls_own_error_is_not_logged(use: Any) -> None:
    gc.collect()  # tasks that other tests have left
    logged = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    await use(Library())
    await quiet()
    gc.collect()
    assert logged == []


class Closing:
    """A consumer with a connection that is cancelled while it closes, as aiokafka's when the broker resets it."""

    def __init__(self) -> None:
        self._client = self
        self.closed = 0

    async def stop(self) -> None:
        raise asyncio.CancelledError

    async def close(self) -> None:
        self.closed += 1
        raise asyncio.CancelledError


async def test_a_connection_cancelled_while_it_closes_does_not_end_the_caller() -> None:
    consumer: Any = Closing()
    await stop_consumer(consumer, limit_s=60.0)
    assert consumer.closed == 1


async def test_a_caller_cancelled_while_a_consumer_closes_is_cancelled() -> None:
    consumer: Any = Closing()
    stopping = asyncio.create_task(stop_consumer(consumer, limit_s=60.0))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
