"""Faults thrown on purpose, one a run: at any call that our code makes of a class or function it works with."""

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import pytest

SECRET: Final = "my card is 4111"
_ROOT: Final = Path(__file__).parents[3]
_OURS: Final = tuple(f"{_ROOT / name}/" for name in ("gateway", "shared", "workers"))


class Thrown(Exception):  # noqa: N818 - nobody handles it by its name
    """A fault of our own that nobody has foreseen. Like many an exception it quotes what a customer wrote."""

    def __init__(self) -> None:
        super().__init__(f"could not convert '{SECRET}'")


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """The `number`th call that one line makes of something. `after`: what was called has done its work by then."""

    callee: str
    caller: str
    line: int
    number: int
    after: bool = False

    def __str__(self) -> str:
        when = "after" if self.after else "at"
        return f"{when} call {self.number + 1} of {self.callee} by {self.caller}, line {self.line}"


@dataclass(slots=True)
class Injector:
    """Counts the calls of a run, and throws at one of them."""

    _at: Call | None = None
    _counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    threw: bool = False

    def begin(self, at: Call | None = None) -> None:
        """A new run. None: nothing is thrown."""
        self._at, self.threw = at, False
        self._counts.clear()

    def calls(self, number: int = 0, *, after: bool = False) -> Iterator[Call]:
        """Of each line that made so many the one of that number."""
        for (callee, caller, line), count in sorted(self._counts.items()):
            if number < count:
                yield Call(callee, caller, line, number, after)

    def stand_before(
        self,
        monkeypatch: pytest.MonkeyPatch,
        classes: Iterable[type],
        functions: Iterable[tuple[ModuleType, str]],
        *,
        but: Iterable[str] = (),
    ) -> None:
        """Of the classes each public method; of the functions each as the module has it. `but`: these by their name."""
        left_out = set(but)
        for each in classes:
            for name, method in vars(each).items():
                full = f"{each.__name__}.{name}"
                if inspect.isfunction(method) and not name.startswith("_") and full not in left_out:
                    monkeypatch.setattr(each, name, self._before(method, full, each.__name__))
        for module, name in functions:
            monkeypatch.setattr(module, name, self._before(getattr(module, name), name, ""))

    def _before(self, call: Callable[..., Any], name: str, own: str) -> Callable[..., Any]:
        """A class's calls of itself are none of a handler's."""

        @functools.wraps(call)
        def called(*args: Any, **named: Any) -> Any:
            place = self._pass_by(name, own, sys._getframe(1))
            if place is None:
                return call(*args, **named)
            if place.after:
                call(*args, **named)
            else:
                _close(args)
            raise Thrown

        @functools.wraps(call)
        def begun(*args: Any, **named: Any) -> Any:
            place = self._pass_by(name, own, sys._getframe(1))
            if place is None:
                return call(*args, **named)
            if place.after:
                return _fails_after(call(*args, **named))
            return _fails(args)

        return begun if inspect.iscoroutinefunction(call) else called

    def _pass_by(self, callee: str, own: str, frame: FrameType) -> Call | None:
        """The call that is to fail, if it is this one."""
        code = frame.f_code
        if not code.co_filename.startswith(_OURS) or (own and code.co_qualname.startswith(f"{own}.")):
            return None
        place = callee, code.co_qualname, frame.f_lineno
        number = self._counts[place]
        self._counts[place] += 1
        at = self._at
        if at is None or (at.callee, at.caller, at.line, at.number) != (*place, number):
            return None
        self.threw = True
        return at


# A coroutine raises where it is awaited, not where it is made.
async def _fails(args: Iterable[Any]) -> None:
    _close(args)
    raise Thrown


async def _fails_after(work: Awaitable[Any]) -> None:
    await work
    raise Thrown


def _close(args: Iterable[Any]) -> None:
    """Work that is not begun now never is, nor what it was given."""
    for each in args:
        if inspect.iscoroutine(each):
            given = list(inspect.getcoroutinelocals(each).values())
            each.close()
            _close(given)
