"""Whatever ends a run, what its processes wrote and what it had found until then is still there."""

from pathlib import Path

import pytest

from ops.stack.processes import ServiceError
from tests.chaos.actors.fleet import Fleet


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
