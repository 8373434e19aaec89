"""Exceptions thrown on purpose: one at a time, at each call that a handler makes to its collaborators."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")
_MOST_CALLS: Final = 2_000


class Thrown(Exception):  # noqa: N818 - no handler names it
    """An unexpected exception in our code."""


class Saboteur:
    """Throws at the `at`th call of the objects it wraps; with None it only counts."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.calls: list[str] = []

    def before(self, thing: T, *, within: tuple[str, ...] = ()) -> T:
        """The same with the saboteur before each of its methods, and before those of its attributes `within`."""
        sabotaged: Any = _Sabotaged(self, thing, within)
        return sabotaged  # type: ignore[no-any-return] # replaces it

    @property
    def threw_at(self) -> str:
        """The call, by its name."""
        return self.calls[self._at] if self._at is not None and self._at < len(self.calls) else ""

    def pass_by(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) - 1 == self._at:
            raise Thrown(name)


class _Sabotaged:
    def __init__(self, saboteur: Saboteur, thing: Any, within: tuple[str, ...]) -> None:
        self.__dict__.update(_saboteur=saboteur, _thing=thing, _within=within)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if name in self._within:
            return self._saboteur.before(value)
        if name.startswith("_") or not callable(value):
            return value
        return _passing(self._saboteur, f"{type(self._thing).__name__}.{name}", value)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._thing, name, value)

    def __bool__(self) -> bool:
        return bool(self._thing)

    def __len__(self) -> int:
        return len(self._thing)

    def __contains__(self, item: object) -> bool:
        return item in self._thing


def _passing(saboteur: Saboteur, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **named: Any) -> Any:
        saboteur.pass_by(name)
        return call(*args, **named)

    return called


def each_call(counted: Saboteur) -> Iterator[int]:
    """The number of every call of a run without a fault."""
    assert 0 < len(counted.calls) < _MOST_CALLS
    yield from range(len(counted.calls))
