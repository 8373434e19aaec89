"""The report of a comparison: the verdict, each figure's ratio with its interval, and the distributions. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.lab.load.figures.comparison import Compared, MeasuredOn, Result, rows_of
from ops.lab.load.pages.load import distribution
from ops.measure.bootstrap import Verdict
from ops.measure.plot import Plot
from ops.measure.report import Part, report


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFacts:
    """The facts of the report. `first` and `second` are the names of the files, `unlike` the conditions in which the
    runs differ."""

    first: str
    second: str
    before: Result
    after: Result
    rows: Sequence[Compared]
    verdict: Verdict
    unlike: Sequence[str]
    tolerance: float
    command: str


def compare_page(facts: CompareFacts) -> str:
    """Return the HTML file."""
    counts = [len(result.samples.in_time) for result in (facts.before, facts.after)]
    answer = {"regression": "Yes.", "improvement": "No, it is better.", "no difference": "No."}[facts.verdict]
    lead = f"Is {facts.second} ({counts[1]:,} requests) worse than {facts.first} ({counts[0]:,} requests)? {answer}"
    unlike = "".join(f" Different conditions: {one}." for one in facts.unlike)
    titles, rows = rows_of(facts.rows, facts.first, facts.second)
    parts = (
        Part(title="Figures", text=_terms(facts), titles=titles, rows=rows),
        Part(title="Distributions", text="The share of the model's answers up to that time.", plots=_plots(facts)),
        Part(
            title="How this was made",
            pairs={
                "command": facts.command,
                "tolerance": f"{facts.tolerance:.0%}",
                f"before: {facts.first}": _machine(facts.before.environment),
                f"after: {facts.second}": _machine(facts.after.environment),
            },
        ),
    )
    return report(
        f"{facts.verdict.capitalize()}: {facts.second} after {facts.first}",
        lead + unlike,
        parts,
        headline={row.figure: f"× {row.ratio.value:.3f}" for row in facts.rows if row.ratio is not None},
    )


def _terms(facts: CompareFacts) -> str:
    return (
        f"A ratio is the second result over the first. If its 99 % interval includes 1, or it is within "
        f"{facts.tolerance:.0%} of 1, there is no difference. The intervals are from 1,000 draws of blocks of "
        "neighbouring requests (circular block bootstrap); five at 99 % are 95 % for all together. They do not include "
        "differences from run to run."
    )


def _plots(facts: CompareFacts) -> list[Plot]:
    before, after = (f"before: {facts.first}", f"after: {facts.second}")
    one, other = facts.before.samples, facts.after.samples
    return [
        *distribution({before: one.ttft_ms, after: other.ttft_ms}, "TTFT"),
        *distribution({before: one.e2e_ms, after: other.e2e_ms}, "end to end"),
    ]


def _machine(machine: MeasuredOn) -> str:
    return f"{machine.engine} over {machine.broker}, {machine.cpu}, {machine.cores} cores"
