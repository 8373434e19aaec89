"""However a command fails that is no fault of ours, it ends with one line."""

import errno
from typing import Any

import pytest

from ops import cli
from shared.errors import ReplylineError, SettingsError


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (SettingsError("bad"), 2, "bad"),
        (ReplylineError("gone"), 1, "gone"),
        (OSError(errno.ENOSPC, "No space left on device", "a.json"), 1, "No space left on device: 'a.json'"),
        (TimeoutError(), 1, "TimeoutError"),
    ],
)
def test_a_failure_is_one_line_and_its_status(
    error: Exception,
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr(cli, "run_app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (status, 1)
    assert told in line
