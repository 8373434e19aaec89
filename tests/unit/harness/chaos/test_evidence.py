"""Whatever ends a run, what its processes wrote and what it had found until then is still there."""

import asyncio
import io
import json
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from ops.stack.processes import ServiceError
from tests.chaos import network
from tests.chaos.actors.fleet import Fleet
from tests.chaos.actors.load import LoadFailed
from tests.chaos.faults.cells import Cell
from tests.chaos.ledger.requests import Ledger
from tests.chaos.ledger.rights import Oracle
from tests.chaos.ledger.verdict import judge
from tests.chaos.network_table import CellRow, Passed, row_of


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def test_an_error_keeps_the_logs_and_names_them(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "gateway-0.log").write_text("the last words")
    with pytest.raises(ServiceError), Fleet(brokers=1, logs=logs):
        raise ServiceError("gateway-0 is still there 15 s after SIGTERM")
    assert (logs / "gateway-0.log").read_text() == "the last words"
    assert capsys.readouterr().err == f"the processes' logs: {logs}\n"


def test_an_error_that_names_them_is_enough(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (logs / "gateway-0.log").touch()
    with pytest.raises(ServiceError), Fleet(brokers=1, logs=logs):
        raise ServiceError(f"broken; the processes' logs: {logs}")
    assert logs.exists()
    assert capsys.readouterr().err == ""


def test_where_nothing_was_written_or_all_went_well_or_somebody_stopped_it_nothing_stays(tmp_path: Path) -> None:
    for number, ended_by in enumerate((ServiceError("no Java"), None, KeyboardInterrupt())):
        logs = tmp_path / str(number)
        logs.mkdir()
        if number:
            (logs / "gateway-0.log").touch()
        try:
            with Fleet(brokers=1, logs=logs):
                if ended_by is not None:
                    raise ended_by
        except (ServiceError, KeyboardInterrupt):
            pass
        assert not logs.exists()


def test_the_cells_before_an_error_are_told_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first does not hold; in the second the load fails: the table, the JSON and the logs have the first."""

    async def start(fleet: Fleet) -> None:
        (fleet.logs / "worker-0.log").touch()

    async def run(_: object, cell: Cell, __: Console) -> CellRow:
        if str(cell) == "reset:client":
            raise LoadFailed("reset:client: not every client has a session")
        return row_of(cell, judge(Ledger(), Oracle()), passed=Passed(), back_s=0.0)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Fleet, "start", start)
    monkeypatch.setattr(network._Trial, "run", run)
    result = tmp_path / "network.json"
    options = network.NetworkOptions(seed=1, requests=30, cells="reset:kafka,reset:client", json_path=result)
    with pytest.raises(LoadFailed):
        asyncio.run(network.run_network(options, Console(file=io.StringIO())))
    said = capsys.readouterr()
    assert "| reset:kafka |" in said.out
    (log,) = tmp_path.glob("*/worker-0.log")
    assert said.err == f"the processes' logs: {log.parent}\n"
    written = json.loads(result.read_bytes())
    assert ([row["cell"] for row in written["cells"]], written["holds"]) == (["reset:kafka"], False)
