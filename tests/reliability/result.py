"""`reliability.json`: what it holds, and what of an earlier one is kept. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ops.measure.environment import Environment
from shared.errors import SettingsError
from tests.reliability.promises import PROMISES, Promise
from tests.reliability.rows import Row

_PLACES: Final = {promise.row: place for place, promise in enumerate(PROMISES)}


class Found(Struct, frozen=True, kw_only=True):
    """`complete`: whether all that was asked for was tried to its end; until then what is to come is "not run"."""

    complete: bool
    rows: list[Row]
    environment: Environment


def reached(row: Row) -> bool:
    """Whether it holds, and the whole run that the target speaks of was made."""
    return row.holds and row.fraction >= 1


def to_try(wanted: Sequence[Promise], former: Found, *, chosen: bool) -> list[Promise]:
    """What is left of the wanted promises beside an earlier result: those that were `chosen` by name, else those that
    do not hold there, or were not tried whole."""
    done = {row.row for row in former.rows} - {row.row for row in former.rows if not reached(row)}
    return [promise for promise in wanted if chosen or promise.row not in done]


def kept(former: Found, tried: Sequence[Promise]) -> list[Row]:
    """The rows of an earlier result, all but those that are tried now."""
    again = {promise.row for promise in tried}
    return [row for row in former.rows if row.row not in again and row.row in _PLACES]


def in_order(rows: Sequence[Row]) -> list[Row]:
    """As docs/reliability.md has them."""
    return sorted(rows, key=lambda row: _PLACES[row.row])


def check_same_machine(former: Environment, now: Environment) -> None:
    """Raises `SettingsError`: figures of two machines are no one result."""
    for name in ("cpu", "cores", "system", "python"):
        before, today = getattr(former, name), getattr(now, name)
        if before != today:
            raise SettingsError(f"--keep: what is there was found with {name} {before}, and here it is {today}")
