"""An event loop whose time is its own: whoever sleeps on it waits for nobody, and time is what they slept."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
