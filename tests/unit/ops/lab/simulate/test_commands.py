"""`replyline simulate` on its command line: a wrong option is one line and status 2, a right one prints the table."""

import json
import sys
from pathlib import Path

import pytest

from ops import cli


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--trace", "nothing"], "--trace nothing"),
        (["--load", "nan"], "--load nan"),
        (["--policy", "lifo"], "--policy lifo"),
        (["--slots", "0"], "--slots 0"),
        (["--costs", "/nowhere/costs.json"], "--costs /nowhere"),
        (["--json", "/nowhere/at/all.json"], "--json /nowhere"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_two(
    arguments: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the option and what was given."""
    monkeypatch.setattr(sys, "argv", ["replyline", "simulate", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert (ended.value.code, line.count("\n")) == (2, 1)
    assert named in line


def test_it_prints_the_table_and_writes_rows_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run of two policies and the bound; the JSON is the rows."""
    rows_path, plot_path = tmp_path / "rows.json", tmp_path / "plot.svg"
    policies = ("--policy", "goodput", "--policy", "edf", "--policy", "bound")
    given = ("--seconds", "5", "--json", str(rows_path), "--plot", str(plot_path))
    monkeypatch.setattr(sys, "argv", ["replyline", "simulate", *policies, *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert [line.split("|")[3].strip() for line in shown.splitlines()[2:]] == ["bound", "goodput", "edf"]
    assert [row["policy"] for row in json.loads(rows_path.read_text())] == ["bound", "goodput", "edf"]
    assert plot_path.read_text().startswith("<svg")
