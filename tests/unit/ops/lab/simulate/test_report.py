"""Rows and plot: the keys that scripts read, and a file that needs nothing else."""

import re
from xml.etree import ElementTree as ET

import msgspec
import pytest

from ops.lab.simulate.comparison import ALL_POLICIES, Comparison
from ops.lab.simulate.plot import plot
from ops.lab.simulate.rows import SimulationRow
from ops.traces.costs import CPU
from shared.settings import Settings

PROMISED = (
    "trace", "load", "policy", "seed", "requests", "model_in_deadline", "model_late", "fallback", "refused",
    "ttft_p50_ms", "ttft_p99_ms",
)  # fmt: skip


@pytest.fixture(scope="module")
def experiment() -> Comparison:
    return Comparison(
        traces=("bimodal", "burst"),
        loads=(0.5, 2.0),
        policies=ALL_POLICIES,
        slots=4,
        seconds=10,
        costs=CPU,
        settings=Settings(),
    )


@pytest.fixture(scope="module")
def rows(experiment: Comparison) -> list[SimulationRow]:
    return experiment.run(lambda _done: None)


def test_rows_have_the_promised_keys(rows: list[SimulationRow]) -> None:
    """As JSON, each of them; the counts add up to the requests."""
    for row in msgspec.json.decode(msgspec.json.encode(rows)):
        assert set(PROMISED) <= row.keys()
        ends = row["model_in_deadline"] + row["model_late"] + row["fallback"] + row["refused"]
        assert ends == row["requests"]


def test_the_same_experiment_gives_the_same_rows(experiment: Comparison, rows: list[SimulationRow]) -> None:
    """All but the time that this machine took."""
    again = experiment.run(lambda _done: None)
    assert [msgspec.structs.replace(row, times_real_time=None) for row in again] == [
        msgspec.structs.replace(row, times_real_time=None) for row in rows
    ]


def test_the_plot_is_one_file_with_a_bar_a_row(rows: list[SimulationRow]) -> None:
    """Well-formed, without script or link; each bar's parts are its outcomes, and fill it."""
    text = plot(rows)
    root = ET.fromstring(text)
    assert not re.search(r"https?:|<script|<link|@import|url\(", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    told = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert told[:4] == [
        f"in deadline: {rows[0].model_in_deadline:,}",
        f"late: {rows[0].model_late:,}",
        f"fallback: {rows[0].fallback:,}",
        f"refused: {rows[0].refused:,}",
    ]
    assert len(told) == 4 * len(rows)
