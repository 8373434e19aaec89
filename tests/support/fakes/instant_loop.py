"""An event loop with a virtual clock: a sleep returns without waiting and advances the clock by its length."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class InstantLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector: selectors.BaseSelector
        select = self._selector.select

        def select_at_once(timeout: float | None = None) -> list[Any]:
            self._now_s += timeout or 0.0
            return select(0)

        self._selector.select = select_at_once  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now_s


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        return runner.run(work)


def at_once(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on such a loop."""

    @wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        run_at_once(test(*given, **named))

    return run
