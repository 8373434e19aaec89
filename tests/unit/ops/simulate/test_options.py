"""`replyline simulate` on its command line: a wrong option is one line and status 2, a right one prints the table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", "simulate", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--trace", "nothing"], "--trace nothing"),
        (["--load", "0"], "--load 0"),
        (["--load", "nan"], "--load nan"),
        (["--policy", "lifo"], "--policy lifo"),
        (["--slots", "0"], "--slots 0"),
        (["--seconds", "-1"], "--seconds -1"),
        (["--noise", "7"], "--noise 7"),
        (["--costs", "/nowhere/costs.json"], "--costs /nowhere"),
        (["--json", "/nowhere/at/all.json"], "--json"),
        (["--plot", "/nowhere/at/all.svg"], "--plot"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_two(arguments: list[str], named: str) -> None:
    """The line names the option and what was given."""
    done = simulate(*arguments)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_it_prints_the_table_and_writes_rows_and_plot(tmp_path: Path) -> None:
    """One run of two policies and the bound; the JSON is the rows."""
    rows_path, plot_path = tmp_path / "rows.json", tmp_path / "plot.svg"
    policies = ("--policy", "goodput", "--policy", "edf", "--policy", "bound")
    done = simulate(*policies, "--seconds", "5", "--json", str(rows_path), "--plot", str(plot_path))
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[3].strip() for line in done.stdout.splitlines()[2:]] == ["bound", "goodput", "edf"]
    assert [row["policy"] for row in json.loads(rows_path.read_text())] == ["bound", "goodput", "edf"]
    assert plot_path.read_text().startswith("<svg")
