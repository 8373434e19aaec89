"""Two results side by side as a report: the verdict, each figure's ratio with its interval, the distributions. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ops.load.figures.comparison import Compared, Machine, Result
from ops.load.pages.charts import distribution
from ops.load.pages.load import headline
from ops.load.pages.style import STYLE
from ops.measure.bootstrap import Verdict
from ops.measure.page import Html, abstract, figure, page, pairs, paragraph, section, strong, table, text
from ops.measure.runner import Cell, show
from ops.measure.svg import Axis, Plot, linear

_KINDS: Final[dict[Verdict, str]] = {
    "regression": "v-regression",
    "improvement": "v-improvement",
    "no difference": "v-none",
}
_ROW_PX: Final = 34.0
_FRAME_PX: Final = 72.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFacts:
    """`first` and `second` are the files' names, `unlike` what they differ in beside what is measured."""

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
    """The whole file."""
    ratios = (
        "Each figure of the second result over the first's: the dot is the ratio, the line its 99 % interval. Where "
        f"the line touches 1, or the dot is within {facts.tolerance:.0%} of it, there is no difference."
    )
    drawn = [
        (ratios, _ratios(facts.rows)),
        ("The share of the model's answers that had come by then, in both.", _distributions(facts)),
    ]
    parts = [
        *[figure(number, caption, drawings) for number, (caption, drawings) in enumerate(drawn, start=1) if drawings],
        section("Figures", _table(facts)),
        section("How this was made", _making(facts)),
    ]
    return page(f"{facts.verdict.capitalize()}: {facts.second} after {facts.first}", _lead(facts), parts, style=STYLE)


def _lead(facts: CompareFacts) -> Html:
    counts = [len(result.samples.in_time) for result in (facts.before, facts.after)]
    told = paragraph(
        text(f"Is {facts.second} ({counts[1]:,} requests) worse than {facts.first} ({counts[0]:,} requests)? "),
        strong({"regression": "Yes.", "improvement": "No, it is better.", "no difference": "No."}[facts.verdict]),
    )
    figures = headline({row.figure: f"× {row.ratio.value:.3f}" for row in facts.rows if row.ratio is not None})
    return Html(told + figures + abstract([Html(f"{strong('Not alike:')} {text(one)}") for one in facts.unlike]))


def _ratios(rows: Sequence[Compared]) -> list[str]:
    """A line for each figure's interval."""
    known = [(row, row.ratio) for row in rows if row.ratio is not None]
    if not known:
        return []
    ends = [min(end, 2 * ratio.value) for _, ratio in known for end in (ratio.low, ratio.high, ratio.value)]
    low, high = min([0.9, *ends]), max([1.1, *ends])
    ticks = tuple(tick for tick in linear("", [high]).ticks if low <= tick <= high) or (1.0,)
    plot = Plot(
        Axis("ratio", low, high, ticks),
        Axis("", 0.0, float(len(known)), ()),
        "Ratios with their intervals",
        height=_ROW_PX * len(known) + _FRAME_PX,
        threads=False,
    )
    plot.mark(1.0, "as before")
    for place, (row, ratio) in enumerate(known):
        y = len(known) - place - 0.5
        kind = {"regression": "e-model-late-or-cut", "improvement": "e-model-in-time"}.get(row.verdict, "e-busy")
        plot.line([(ratio.low, y), (min(ratio.high, high), y)], kind, "")
        plot.point(ratio.value, y, f"full {kind}", row.figure)
    return [plot.text()]


def _distributions(facts: CompareFacts) -> list[str]:
    before, after = facts.before.samples, facts.after.samples
    drawings = [
        distribution({(facts.first, "l-before"): one, (facts.second, "l-after"): other}, title)
        for title, one, other in (
            ("TTFT", before.ttft_ms, after.ttft_ms),
            ("end to end", before.e2e_ms, after.e2e_ms),
        )
    ]
    return [drawing for drawing in drawings if drawing]


def _table(facts: CompareFacts) -> Html:
    titles = ("", facts.first, facts.second, "ratio", "99 % of it", "verdict")
    rows: list[list[Cell]] = []
    for row in facts.rows:
        found = row.ratio
        if found is None:
            rows.append([row.figure, None, None, None, None, row.verdict])
            continue
        interval = f"{found.low:.3f} – {found.high:.3f}"
        rows.append([row.figure, show(found.a), show(found.b), f"{found.value:.3f}", interval, row.verdict])
    return table(titles, rows, kinds=[_KINDS[row.verdict] for row in facts.rows])


def _making(facts: CompareFacts) -> Html:
    told = paragraph(
        text(
            "The intervals are from 1,000 draws of blocks of neighbouring requests (circular block bootstrap); five at "
            "99 % are 95 % for all together. They know nothing of what differs from run to run."
        )
    )
    return Html(
        told
        + pairs(
            {
                "command": facts.command,
                "tolerance": f"{facts.tolerance:.0%}",
                f"before: {facts.first}": _machine(facts.before.environment),
                f"after: {facts.second}": _machine(facts.after.environment),
            }
        )
    )


def _machine(machine: Machine) -> str:
    return f"{machine.engine} over {machine.broker}, {machine.cpu}, {machine.cores} cores"
