"""The report: one HTML file that needs nothing else. Pure but for the versions it names."""

from collections.abc import Sequence
from importlib.metadata import version

from ops.measure.page import Html, abstract, figure, pairs, paragraph, section, strong, table, text
from ops.measure.page import page as document
from ops.measure.runner import Cell
from ops.simulate.charts import case_name, figures, kind_of
from ops.simulate.experiment import Experiment
from ops.simulate.page_style import STYLE
from ops.simulate.rows import Row
from ops.simulate.summary import ratio_to_ours

_PACKAGES = ("replyline", "numpy", "msgspec")
_KEYS = {"o-in-deadline": "in time", "o-late": "late or cut", "o-fallback": "fallback", "o-refused": "refused"}


def page(rows: Sequence[Row], experiment: Experiment, command: str) -> str:
    """The rows with their plots, and how they were made."""
    drawn = [
        figure(number, one.caption, one.drawings, wide=one.wide, keys=_KEYS if number == 1 else None)
        for number, one in enumerate(figures(rows), start=1)
    ]
    parts = (*drawn, section("Rows", _table(rows)), *_classes(rows))
    making = section("How this was made", _making(experiment, command))
    return document("Simulated scheduling", _abstract(rows), (*parts, making), style=STYLE)


def _abstract(rows: Sequence[Row]) -> Html:
    """What each trace shows in a sentence."""
    said: list[Html] = []
    for name in dict.fromkeys(case_name(row) for row in rows):
        case = [row for row in rows if case_name(row) == name]
        ours = next((row for row in case if row.policy == "goodput"), None)
        if ours is None:
            continue
        of_bound = f", {ours.of_bound:.2f} of the offline bound" if ours.of_bound is not None else ""
        others = [
            f"{ratio:.1f}× {row.policy}"
            for row in case
            if row.policy not in {"goodput", "bound"} and (ratio := ratio_to_ours(row, rows)) is not None
        ]
        against = f": {', '.join(others)}" if others else ""
        counts = f"{ours.model_in_deadline:,} of {ours.requests:,} answered in time"
        said.append(Html(f"{strong(name)} {text(f'{counts}{of_bound}{against}.')}"))
    return abstract(said)


def _table(rows: Sequence[Row]) -> Html:
    titles = (
        "trace", "policy", "requests", "in time", "late", "fallback", "refused", "TTFT p50 ms", "p99 ms",
        "of bound", "goodput ×", "rows a step", "wasted", "× real time",
    )  # fmt: skip
    cells: list[list[Cell]] = [
        [
            case_name(row), row.policy,
            row.requests, row.model_in_deadline, row.model_late, row.fallback, row.refused, row.ttft_p50_ms,
            row.ttft_p99_ms, row.of_bound, ratio_to_ours(row, rows), row.mean_batch_rows,
            None if row.wasted_steps is None else f"{row.wasted_steps:.2%}", row.times_real_time,
        ]
        for row in rows
    ]  # fmt: skip
    return table(titles, cells, heads=2, kinds=[kind_of(row) for row in rows])


def _classes(rows: Sequence[Row]) -> list[Html]:
    found = [(row, bucket, of) for row in rows for bucket, of in row.by_class.items()]
    if not found:
        return []
    titles = ("trace", "policy", "class", "requests", "in time", "of the work in time", "× floor")
    cells: list[list[Cell]] = [
        [case_name(row), row.policy, bucket, of.requests, of.model_in_deadline, f"{of.work_share:.1%}", of.floor_ratio]
        for row, bucket, of in found
    ]
    told = paragraph(
        text(
            "The floor is half of a class's proportional share of capacity, in least machine time of answers in time: "
            "from 1 on it is kept."
        )
    )
    return [section("Classes", told, table(titles, cells, heads=3, kinds=[kind_of(row) for row, _, _ in found]))]


def _making(experiment: Experiment, command: str) -> Html:
    costs, calls = experiment.costs, experiment.costs.table
    return pairs(
        {
            "command": command,
            "seed": str(experiment.seed),
            "slots": f"{experiment.slots}, prefill calls of at most {experiment.least.prefill_chunk_tokens} tokens",
            "answer lengths": f"{experiment.lengths} to the scheduler",
            "deadlines": f"the product's {costs.profile} profile, where the trace has none of its own",
            "costs": f"{costs.name}: {costs.source}",
            "decode call, ms": f"{calls.decode_ms:g} + {calls.decode_ms_per_row:g} rows "
            f"+ {calls.decode_ms_per_context_token:g} context",
            "prefill call, ms": f"{calls.prefill_ms:g} + {calls.prefill_ms_per_token:g} tokens "
            f"+ {calls.prefill_ms_per_past_token:g} past + {calls.prefill_ms_per_token_pair:g} pairs",
            "beside the calls, ms a step": f"{costs.step_overhead_ms:g}",
            "noise": f"{experiment.noise:.0%}",
            "versions": ", ".join(f"{package} {version(package)}" for package in _PACKAGES),
        }
    )
