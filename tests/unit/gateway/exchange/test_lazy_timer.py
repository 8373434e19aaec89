"""A timer that is moved on with every delta."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.exchange.exchange import LazyTimer
from tests.support.fakes.instant_loop import run_at_once

_STEPS = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from(["set", "clear", "close", "nothing"]), st.integers(1, 30)),
    max_size=12,
)


@given(_STEPS)
def test_the_timer_fires_at_the_last_moment_set(steps: list[tuple[int, str, int]]) -> None:
    """Like a timer that is recreated each time."""
    called, wanted = run_at_once(_run(steps))
    assert called == wanted


async def _run(steps: list[tuple[int, str, int]]) -> tuple[list[float], list[float]]:
    loop, called, wanted = asyncio.get_running_loop(), list[float](), list[float]()
    timer, at_s = LazyTimer(lambda: called.append(round(loop.time(), 3))), None
    for pause_s, step, wait_s in [*steps, (100, "nothing", 0)]:
        await asyncio.sleep(pause_s + 0.5)
        if at_s is not None and at_s <= loop.time():
            wanted.append(round(at_s, 3))
            at_s = None
        if step == "set":
            timer.set(wait_s)
            at_s = loop.time() + wait_s
        elif step != "nothing":
            getattr(timer, step)()
            at_s = None
    return called, wanted
