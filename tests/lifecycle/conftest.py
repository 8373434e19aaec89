"""What the tests of the lifecycle share: the table that they fill, and how much of it is asked for."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.rows import Rows

ASKED: Final = {
    "share: hash on 100,000 names": "within 0.2 points of the share",
}
_FAILURE: Final = pytest.StashKey[str]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/lifecycle/" in item.nodeid:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(3_600))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lifecycle", metavar="FILE", type=Path, help="write the table of the lifecycle to FILE")
    parser.addoption("--whole", action="store_true", help="run all trials, not the short form's")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.excinfo is not None:
        item.stash.setdefault(_FAILURE, " ".join(call.excinfo.exconly().split())[:300])
    return (yield)


@pytest.fixture(scope="session")
def _table(pytestconfig: pytest.Config) -> Rows:
    table = Rows(pytestconfig.getoption("--lifecycle", default=None), ASKED)
    table.write()
    return table


@pytest.fixture
def rows(_table: Rows, request: pytest.FixtureRequest) -> Iterator[Rows]:
    """The table of this run; with `--lifecycle FILE` it is written there. Of the rows that the test's mark names, those
    that it does not come to are "not run", with its failure."""
    _table.missed.clear()
    yield _table
    for mark in request.node.iter_markers("rows"):
        for name in mark.args:
            _table.not_run(name, request.node.stash.get(_FAILURE, "its test found nothing"))
    if _table.missed:
        pytest.fail("\n".join(_table.missed), pytrace=False)


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether all trials are asked for."""
    return bool(pytestconfig.getoption("--whole", default=False))
