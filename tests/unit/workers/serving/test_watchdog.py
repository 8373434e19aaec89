"""A worker that stalls ends: by itself, or by a timer if none of its code runs."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from shared.errors import EngineError
from shared.settings import Settings
from tests.support.fakes.instant_loop import at_once
from workers import __main__ as worker_process
from workers.engine.load_model import LoadedModel
from workers.serving import watchdog
from workers.serving.watchdog import LEAVE_S, LOAD_S, Watchdog
from workers.versions.beginning import load_first
from workers.versions.candidate import Candidate

LIMIT_S = 30.0


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float | None]]:
    """Return the times at which the timer was set, and the values: None for a stopped one."""
    times: list[tuple[float, float | None]] = []

    def now() -> float:
        return asyncio.get_running_loop().time()

    monkeypatch.setattr(watchdog, "end_within", lambda seconds: times.append((now(), seconds)))
    monkeypatch.setattr(watchdog, "end_never", lambda: times.append((now(), None)))
    return times


@at_once
async def test_a_hung_step_ends_the_worker_and_it_is_gone_within_35_s(armed: list[tuple[float, float | None]]) -> None:
    hangs_from_s = 100.0

    def stuck() -> str | None:
        passed_s = asyncio.get_running_loop().time() - hangs_from_s
        return f"a step has not ended for {passed_s:.0f} s" if passed_s >= LIMIT_S else None

    with pytest.raises(EngineError, match="a step has not ended for 30 s"):
        await Watchdog(stuck, LIMIT_S).watch()
    ended_s, left_s = armed[-1]
    assert left_s == LEAVE_S
    assert ended_s + left_s <= hangs_from_s + 35.0


@at_once
async def test_a_worker_that_was_stopped_for_longer_than_a_step_may_take_goes_on(
    armed: list[tuple[float, float | None]],
) -> None:
    looks: list[str | None] = ["a step has not ended for 40 s", None] * 3
    watching = asyncio.create_task(Watchdog(lambda: looks.pop() if looks else None, LIMIT_S).watch())
    await asyncio.sleep(10.0)
    assert not looks
    assert not watching.done()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@at_once
async def test_where_not_even_the_event_loop_runs_the_timer_is_due_in_time(
    armed: list[tuple[float, float | None]],
) -> None:
    """It is set again all the while: seldom, and before it could end a worker whose step still has time."""
    watching = asyncio.create_task(Watchdog(lambda: None, LIMIT_S).watch())
    await asyncio.sleep(60.0)
    assert {seconds for _, seconds in armed} == {LIMIT_S + LEAVE_S}
    times = [at_s for at_s, _ in armed]
    gaps_s = [after - before for before, after in pairwise(times)]
    assert min(gaps_s) >= 2.0
    assert max(gaps_s) < LEAVE_S
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert armed[-1][1] is None, "one that is asked to go is not ended by it"


@at_once
async def test_an_event_loop_that_each_step_holds_sets_the_timer_in_time(
    armed: list[tuple[float, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step ends in time, and each look comes as late as that."""
    monkeypatch.setattr(watchdog, "_LOOK_S", LIMIT_S - 1.0)
    watching = asyncio.create_task(Watchdog(lambda: None, LIMIT_S).watch())
    await asyncio.sleep(600.0)
    assert max(after - before for (before, _), (after, _) in pairwise(armed)) < LIMIT_S + LEAVE_S
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_gpu_that_hangs_before_it_serves_ends_the_worker_too(
    armed: list[tuple[float, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it loads, and while its costs are measured: then no loop looks after it yet."""
    limits: dict[str, float | None] = {}

    async def choosing(*_: object) -> tuple[None]:
        return (None,)

    def loading(*given: Any) -> tuple[Candidate, LoadedModel]:
        limits["load"] = armed[-1][1]
        return load_first(*given)

    def measuring(*_: object) -> None:
        limits["measure"] = armed[-1][1]
        raise EngineError("no costs")

    monkeypatch.setattr(worker_process, "choices", choosing)
    monkeypatch.setattr(worker_process, "load_first", loading)
    monkeypatch.setattr(worker_process, "load_or_calibrate", measuring)
    settings = Settings.model_validate({"worker": {"engine": "fake", "metrics_port": 0, "step_limit_s": LIMIT_S}})
    with pytest.raises(EngineError, match="no costs"):
        await worker_process.serve(settings, asyncio.Event())
    assert limits == {"load": LOAD_S, "measure": 3.0 + LIMIT_S + LEAVE_S}
    assert [seconds for _, seconds in armed if seconds is None] == [None, None]
