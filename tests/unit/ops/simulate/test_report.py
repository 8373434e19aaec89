"""Rows and report: the keys that scripts read, and a page that needs nothing else."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from ops.measure.svg import linear, logarithmic
from ops.simulate.experiment import ALL_POLICIES, Experiment
from ops.simulate.page import page
from ops.simulate.rows import Row
from ops.simulate.summary import ratio_to_ours, table
from ops.traces.costs import CPU
from shared.settings import Settings

PROMISED = (
    "trace", "load", "policy", "seed", "requests", "model_in_deadline", "model_late", "fallback", "refused",
    "ttft_p50_ms", "ttft_p99_ms",
)  # fmt: skip
VOID = {"meta", "br"}


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Experiment(
        traces=("bimodal", "burst"),
        loads=(0.5, 2.0),
        policies=ALL_POLICIES,
        slots=4,
        seconds=10,
        seed=1,
        lengths="predicted",
        costs=CPU,
        settings=Settings(),
    )


@pytest.fixture(scope="module")
def rows(experiment: Experiment) -> list[Row]:
    return experiment.run(lambda _done: None)


def test_each_trace_load_and_policy_has_a_row_and_the_bound_is_one(experiment: Experiment, rows: list[Row]) -> None:
    """In that order."""
    assert len(rows) == experiment.num_runs == 2 * 2 * 8
    assert [row.policy for row in rows[:8]] == [*ALL_POLICIES]


def test_rows_have_the_promised_keys(rows: list[Row]) -> None:
    """As JSON, each of them; the counts add up to the requests."""
    for row in msgspec.json.decode(msgspec.json.encode(rows)):
        assert set(PROMISED) <= row.keys()
        ends = row["model_in_deadline"] + row["model_late"] + row["fallback"] + row["refused"]
        assert ends == row["requests"]


def test_the_same_experiment_gives_the_same_rows(experiment: Experiment, rows: list[Row]) -> None:
    """All but how long this machine took for it."""
    again = experiment.run(lambda _done: None)
    assert [msgspec.structs.replace(row, times_real_time=None) for row in again] == [
        msgspec.structs.replace(row, times_real_time=None) for row in rows
    ]


def test_ratios_are_of_our_answers_on_the_same_trace(rows: list[Row]) -> None:
    """None where the other gave no answer in time."""
    ours = next(row for row in rows if row.policy == "goodput")
    other = next(row for row in rows if row.policy == "static")
    if other.model_in_deadline:
        assert ratio_to_ours(other, rows) == ours.model_in_deadline / other.model_in_deadline
    assert ratio_to_ours(ours, rows) == 1.0
    assert ratio_to_ours(msgspec.structs.replace(other, model_in_deadline=0), rows) is None


def test_the_table_is_markdown_with_a_line_a_row(rows: list[Row]) -> None:
    """A header, its rule, and the rows."""
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert len({line.count("|") for line in lines}) == 1


def test_the_report_needs_nothing_else(experiment: Experiment, rows: list[Row]) -> None:
    """No script, no link, no font or image from elsewhere; and every tag that is opened is closed."""
    text = page(rows, experiment, "replyline simulate --trace '<x>'")
    assert not re.search(r"https?:|//|<script|<link|@import|url\(", text.replace("<!doctype html>", ""))
    reader = _Nesting()
    reader.feed(text)
    assert reader.open == []
    assert text.count("<svg") >= 4 * 10  # outcomes; and the plots


def test_the_report_shows_each_kind_of_plot_and_how_it_was_made(experiment: Experiment, rows: list[Row]) -> None:
    """Goodput against load, TTFT, batch sizes; the command as it was typed, escaped."""
    text = page(rows, experiment, "replyline simulate --trace '<x>'")
    for said in (
        "Goodput against load, trace burst",
        "Time to the first token",
        "Rows a decode",
    ):
        assert said in text
    assert "--trace &#x27;&lt;x&gt;&#x27;" in text
    assert CPU.source in text


@pytest.mark.parametrize("most", [0.003, 0.7, 1.0, 16.0, 1_234.0])
def test_a_linear_axis_covers_its_values_with_few_marks(most: float) -> None:
    """From zero to at least the greatest."""
    axis = linear("", [most])
    assert axis.low == 0.0
    assert axis.high >= most * 0.999
    assert 2 <= len(axis.ticks) <= 7


@pytest.mark.parametrize("values", [[5.0], [0.5, 10.0], [1.0, 2_000_000.0]])
def test_a_logarithmic_axis_has_marks_whatever_its_values(values: list[float]) -> None:
    """Also for a single one."""
    axis = logarithmic("", values)
    assert axis.ticks
    assert all(0 <= axis.share(value) <= 1 for value in values)


class _Nesting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
