"""A pytest plugin: `@pytest.mark.promise(12)` is on each test that proves row 12 of docs/reliability.md.

`pytest -m promise --reliability FILE` runs these tests whole, prints promise, tests and results as one table, and
writes them to FILE. Without it they run the part that the ordinary suite has time for, and must hold all the same.
"""

from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from ops.measure.environment import Environment, environment
from ops.measure.runner import write_json

_WHOLE_LIMIT_S: Final = 1_800


class Row(Struct, kw_only=True):
    """A test of a promise, in the format of FILE. `result`: not run, passed, failed or skipped; `figure`: its
    measurement."""

    promise: int
    test: str
    result: str = "not run"
    figure: str = ""
    target: str = ""


class Found(Struct, kw_only=True):
    rows: list[Row]
    environment: Environment


class Reliability:
    """The fixture: the size of a test's run, and its measurements."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.figure = self.target = ""

    def amount(self, whole: int, *, part: int) -> int:
        """Return `whole` under `--reliability`, else `part`."""
        return whole if self.whole else part

    def found(self, *, figure: str, target: str, holds: bool) -> None:
        """Keep the figure for the table, then fail unless it holds."""
        self.figure, self.target = figure, target
        if not holds:
            pytest.fail(f"{figure}; target: {target}", pytrace=False)


class Promises:
    """What became of each marked test of this run. A run that is interrupted leaves the others as "not run"."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.reliability = Reliability(whole=path is not None)
        self._rows: list[Row] = []
        self._environment = environment(engine="fake; the model where a test names it", broker="kafka")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.path is None:
            return
        for item in items:
            item.add_marker(pytest.mark.timeout(_WHOLE_LIMIT_S))
        marked = [(mark.args[0], item.nodeid) for item in items for mark in item.iter_markers("promise")]
        self._rows = [Row(promise=number, test=test) for number, test in sorted(marked)]
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        figure, target = self.reliability.figure, self.reliability.target
        self.reliability.figure = self.reliability.target = ""
        for row in self._rows:
            if row.test == report.nodeid and row.result != "failed":
                row.result, row.figure, row.target = report.outcome, figure or row.figure, target or row.target
        self._write()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._rows:
            return
        terminalreporter.section("promises of docs/reliability.md")
        for number in sorted({row.promise for row in self._rows}):
            rows = [row for row in self._rows if row.promise == number]
            holds = all(row.result == "passed" for row in rows)
            terminalreporter.write_line(f"{number:>3} {'holds' if holds else 'DOES NOT HOLD'}", bold=not holds)
            for row in rows:
                told = f": {row.figure} (to reach: {row.target})" if row.figure else ""
                terminalreporter.write_line(f"      {row.result} {row.test}{told}")

    def _write(self) -> None:
        write_json(self.path, Found(rows=self._rows, environment=self._environment))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reliability", metavar="FILE", type=Path, help="run the tests of promises whole, and write what they find"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Promises(config.getoption("reliability")), "promises")


@pytest.fixture(scope="session")
def reliability(pytestconfig: pytest.Config) -> Reliability:
    """Return the size of a test's run, and record its measurements."""
    promises: Promises = pytestconfig.pluginmanager.getplugin("promises")
    return promises.reliability
