"""What the tests of an elastic fleet share: the table that they fill, and how much of it is asked for."""

from pathlib import Path
from typing import Protocol

import pytest

from tests.integration.conftest import _own_broker, own_broker
from tests.support.rows import Rows

__all__ = ["_own_broker", "own_broker"]


class Note(Protocol):
    """Keep a row of the table. One that misses its target fails no test."""

    def __call__(self, row: str, figure: str, target: str, *, holds: bool) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--elastic", metavar="FILE", type=Path, help="write the table of the elastic fleet to FILE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/proofs/elastic/" in item.nodeid:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(3_600))


@pytest.fixture(scope="session")
def _table(pytestconfig: pytest.Config) -> Rows:
    table = Rows(pytestconfig.getoption("--elastic", default=None))
    table.write()
    return table


@pytest.fixture
def note(_table: Rows) -> Note:
    """`note(row, figure, target, holds=...)` keeps a row; with `--elastic FILE` it is written there. Wrong behaviour is
    for `assert`."""

    def keep(row: str, figure: str, target: str, *, holds: bool) -> None:
        _table.found(row, figure=figure, target=target, holds=holds)

    return keep
