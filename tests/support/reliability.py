"""The rows of `reliability.json`: what each promise came to, and how much of its test was run.

`pytest --reliability FILE` runs the tests that take the fixture `reliability`, whole, and appends a line of JSON to
FILE for each row found. Without it they run the part that the ordinary suite has time for, and must hold all the same.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct


class Row(Struct, frozen=True, kw_only=True):
    """`row`: its number in docs/reliability.md; `fraction`: how much of the whole test was run, 1.0 all of it."""

    row: str
    test: str
    figure: str
    target: str
    holds: bool
    fraction: float


@dataclass(frozen=True, slots=True)
class Reliability:
    path: Path | None

    @property
    def whole(self) -> bool:
        return self.path is not None

    def amount(self, whole: int, *, part: int) -> int:
        """How many: `whole` of `--reliability`, else `part`."""
        return whole if self.whole else part

    def found(self, row: str, test: str, *, figure: str, target: str, holds: bool, fraction: float = 1.0) -> None:
        """Record the row, then fail where it does not hold. `fraction` is of the run that the target speaks of."""
        if self.path is not None:
            line = Row(row=row, test=test, figure=figure, target=target, holds=holds, fraction=fraction)
            with self.path.open("ab") as rows:
                rows.write(msgspec.json.encode(line) + b"\n")
        if not holds:
            pytest.fail(f"{test}: {figure}; target: {target}", pytrace=False)
