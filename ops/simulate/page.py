"""The report: one HTML file that needs nothing else. Pure but for the versions it names."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version

from ops.bench.runner import show
from ops.simulate.charts import Figure, case_name, figures, kind_of
from ops.simulate.experiment import Experiment
from ops.simulate.page_style import STYLE
from ops.simulate.rows import Row
from ops.simulate.summary import label, ratio_to_ours

_PACKAGES = ("replyline", "numpy", "msgspec")
_KEYS = (("o-in-deadline", "in time"), ("o-late", "late or cut"), ("o-fallback", "fallback"), ("o-refused", "refused"))


def page(rows: Sequence[Row], experiment: Experiment, command: str) -> str:
    """The rows with their plots, and how they were made."""
    drawn = "".join(_figure(number, figure) for number, figure in enumerate(figures(rows), start=1))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>Replyline: simulated scheduling</title><style>{STYLE}</style></head><body><main>'
        f"<header><h1>Simulated scheduling</h1>{_abstract(rows)}</header>"
        f"{drawn}<section><h2>Rows</h2><div class='scroll'>{_table(rows)}</div></section>"
        f"{_classes(rows)}<section><h2>How this was made</h2>{_making(experiment, command)}</section>"
        "</main></body></html>\n"
    )


def _abstract(rows: Sequence[Row]) -> str:
    """What each trace shows in a sentence."""
    said: list[str] = []
    for name in dict.fromkeys(case_name(row) for row in rows):
        case = [row for row in rows if case_name(row) == name]
        ours = next((row for row in case if row.policy == "goodput" and row.window is None), None)
        if ours is None:
            continue
        of_bound = f", {ours.of_bound:.2f} of the offline bound" if ours.of_bound is not None else ""
        others = [
            f"{ratio:.1f}× {escape(label(row))}"
            for row in case
            if row.policy not in {"goodput", "bound"} and (ratio := ratio_to_ours(row, rows)) is not None
        ]
        against = f": {', '.join(others)}" if others else ""
        counts = f"{ours.model_in_deadline:,} of {ours.requests:,} answered in time"
        said.append(f"<li><b>{escape(name)}</b> {counts}{of_bound}{against}.</li>")
    return f"<ul class='abstract'>{''.join(said)}</ul>" if said else ""


def _figure(number: int, figure: Figure) -> str:
    keys = "".join(f'<span class="key {kind}"></span>{text} ' for kind, text in _KEYS) if number == 1 else ""
    kind = "wide" if figure.wide else "panels"
    drawings = f"<div class='{kind}'>{''.join(figure.drawings)}</div>"
    caption = (
        f"<figcaption><b>Figure {number}.</b> {escape(figure.caption)} <span class='keys'>{keys}</span></figcaption>"
    )
    return f"<figure>{drawings}{caption}</figure>"


def _table(rows: Sequence[Row]) -> str:
    titles = (
        "trace", "policy", "requests", "in time", "late", "fallback", "refused", "TTFT p50 ms", "p99 ms",
        "of bound", "goodput ×", "rows a step", "wasted", "× real time",
    )  # fmt: skip
    lines = []
    for row in rows:
        cells = (
            row.requests, row.model_in_deadline, row.model_late, row.fallback, row.refused, row.ttft_p50_ms,
            row.ttft_p99_ms, row.of_bound, ratio_to_ours(row, rows), row.mean_batch_rows,
            None if row.wasted_steps is None else f"{row.wasted_steps:.2%}", row.times_real_time,
        )  # fmt: skip
        values = "".join(f"<td>{show(cell)}</td>" for cell in cells)
        heads = f"<th scope='row'>{escape(case_name(row))}</th><th>{escape(label(row))}</th>"
        lines.append(f"<tr class='{kind_of(row)}'>{heads}{values}</tr>")
    return _whole_table(titles, lines)


def _classes(rows: Sequence[Row]) -> str:
    lines = [
        f"<tr class='{kind_of(row)}'><th scope='row'>{escape(case_name(row))}</th><th>{escape(label(row))}</th>"
        f"<th>{bucket}</th><td>{of.requests:,}</td><td>{of.model_in_deadline:,}</td><td>{of.work_share:.1%}</td>"
        f"<td>{show(of.floor_ratio)}</td></tr>"
        for row in rows
        for bucket, of in row.by_class.items()
    ]
    if not lines:
        return ""
    titles = ("trace", "policy", "class", "requests", "in time", "of the work in time", "× floor")
    table = _whole_table(titles, lines)
    return (
        "<section><h2>Classes</h2><p>The floor is half of a class's proportional share of capacity, in least machine "
        f"time of answers in time: from 1 on it is kept.</p><div class='scroll'>{table}</div></section>"
    )


def _whole_table(titles: Iterable[str], lines: Iterable[str]) -> str:
    head = "".join(f"<th scope='col'>{escape(title)}</th>" for title in titles)
    return f"<table class='rows'><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _making(experiment: Experiment, command: str) -> str:
    costs, table = experiment.costs, experiment.costs.table
    pairs = {
        "command": command,
        "seed": str(experiment.seed),
        "slots": f"{experiment.slots}, prefill calls of at most {experiment.least.prefill_chunk_tokens} tokens",
        "answer lengths": f"{experiment.lengths} to the scheduler",
        "deadlines": f"the product's {costs.profile} profile, where the trace has none of its own",
        "costs": f"{costs.name}: {costs.source}",
        "decode call, ms": f"{table.decode_ms:g} + {table.decode_ms_per_row:g} rows "
        f"+ {table.decode_ms_per_context_token:g} context",
        "prefill call, ms": f"{table.prefill_ms:g} + {table.prefill_ms_per_token:g} tokens "
        f"+ {table.prefill_ms_per_past_token:g} past + {table.prefill_ms_per_token_pair:g} pairs",
        "beside the calls, ms a step": f"{costs.step_overhead_ms:g}",
        "noise": f"{experiment.noise:.0%}",
        "versions": ", ".join(f"{package} {version(package)}" for package in _PACKAGES),
    }
    return "<dl>" + "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in pairs.items()) + "</dl>"
