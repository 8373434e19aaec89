"""The rows of the matrix: a figure of a form, or of one form by another, next to its target. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from ops.measure.runner import markdown
from tests.bench.cell import Measured
from tests.bench.smaller.forms import AS_WIDE, EXPERTS, FP32, HEADS, INT8, LOOKUP, ONNX, PRUNED, STUDENT, TAUGHT, Form
from tests.support.rows import Row

ROWS: Final = (1, 4, 8, 16)
FIRST_TEXT: Final = "first text of 100 tokens, ms"
START: Final = "start, s"
MEMORY: Final = "memory of 16 slots of 512 tokens, MiB"
_STATED: Final = "stated"
_FEW: Final = 0.98  # of agreement and of right answers


def speed(rows: int) -> str:
    """Return the name of a speed in tokens a second."""
    return f"tok/s, {rows} rows"


class Answered(Struct, frozen=True, kw_only=True):
    """The English questions: how many were asked, answered right, and answered with an invented figure; the same of
    those that the model answered, of those kept for measuring, and of those with an article number."""

    asked: int
    right: int
    invented: int
    by_model: int
    by_model_right: int
    held_out: int
    held_out_right: int
    sku: int
    sku_right: int


class Predicted(Struct, frozen=True, kw_only=True):
    """At how many places the most likely token is fp32's, of how many, and the mean divergence in nats."""

    same: int
    places: int
    nats: float

    @property
    def share(self) -> float:
        return self.same / self.places


def joined(parts: Sequence[Predicted]) -> Predicted:
    """Return the figures of all parts together."""
    places = sum(part.places for part in parts)
    nats = sum(part.nats * part.places for part in parts) / places
    return Predicted(same=sum(part.same for part in parts), places=places, nats=nats)


@dataclass(slots=True, kw_only=True)
class Found:
    """What was measured: the forms; each one's speed, start and memory, by name; what it answered and predicted, the
    latter by kind of text. `experts` are the 8-bit predictions of the experts' example."""

    forms: Sequence[Form]
    measured: Mapping[str, Measured]
    answered: Mapping[str, Answered] = field(default_factory=dict)
    predicted: Mapping[str, Mapping[str, Predicted]] = field(default_factory=dict)
    experts: tuple[float, int] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    def ratio(self, form: str, base: str, figure: str) -> float | None:
        """Return the median over the rounds of one form's figure divided by another's."""
        if form not in self.measured or base not in self.measured:
            return None
        return self.measured[form].ratios(self.measured[base]).get(figure)


def rows_of(found: Found) -> list[Row]:
    """Return all rows: those with a target first, then each form's figures, then what was not measured."""
    return [
        *_lookup(found),
        *_smaller(found),
        *_eight_bits(found),
        *_experts(found),
        *[
            Row(row=f"{form.name}: {name}", figure=one, target=_STATED, holds=True)
            for form in found.forms
            for name, one in figures_of(found, form).items()
        ],
        *[
            Row(row=name, figure=f"not measured: {why}", target="measured", holds=False)
            for name, why in found.missing.items()
        ],
    ]


def _least(row: str, value: float | None, least: float, more: str = "") -> Row:
    if value is None:
        return Row(row=row, figure="not measured", target=f">= {least}", holds=False)
    return Row(row=row, figure=f"{value:.3f}{more}", target=f">= {least}", holds=value >= least)


def _lookup(found: Found) -> list[Row]:
    """The article has 40 % less latency by speculation."""
    form = INT8 + LOOKUP
    rows = [
        _least(f"{form}: tok/s of those without, {rows} rows", found.ratio(form, INT8, speed(rows)), least)
        for rows, least in zip(ROWS, (1.6, 1.2, 1.0, 1.0), strict=True)
    ]
    alone = found.ratio(form, INT8, speed(1))
    less = "not measured" if alone is None else f"{100 * (1 - 1 / alone):.0f} % less time a token"
    rows.append(Row(row=f"{form}: 1 row (article: 40 % less latency)", figure=less, target=_STATED, holds=True))
    looked_up = [found.measured[each.name] for each in found.forms if each.looks_up and each.name in found.measured]
    differing = sum(each.failed for each in looked_up)
    rows.append(Row(row="lookup: texts that differ", figure=str(differing), target="0", holds=differing == 0))
    return rows


def _smaller(found: Found) -> list[Row]:
    rows = []
    for form, decode, prefill, right in (
        (PRUNED, 1.25, 1.2, 0.98),
        (TAUGHT, 1.25, 1.2, 0.98),
        (STUDENT, 1.7, 0.0, 0.95),
    ):
        if form not in found.measured:
            continue
        faster = found.ratio(INT8, form, FIRST_TEXT)
        rows.append(_least(f"{form}: tok/s of int8's, 8 rows", found.ratio(form, INT8, speed(8)), decode))
        if prefill:
            rows.append(_least(f"{form}: speed of a prompt of 100 tokens, of int8's", faster, prefill))
        rows += _right(found, form, INT8, right)
        first = found.measured[form].medians().get(FIRST_TEXT)
        if first is not None:
            row = f"{form}: {FIRST_TEXT} (article: 200 on a CPU)"
            rows.append(Row(row=row, figure=f"{first:.0f}", target="<= 200", holds=first <= 200))
    if HEADS in found.answered and (of := found.answered[INT8].right):
        share = found.answered[HEADS].right / of
        row = f"{HEADS}: right answers of int8's (article: 30 % of heads, 98 %)"
        rows.append(Row(row=row, figure=f"{share:.3f}", target=_STATED, holds=True))
    return rows


def _right(found: Found, form: str, base: str, least: float) -> list[Row]:
    """Return the right answers to held-out questions: the others have taught the adapter and the pruning."""
    if form not in found.answered or not (of := found.answered[base].held_out_right):
        return [_least(f"{form}: right answers of {base}'s", None, least)]
    mine = found.answered[form]
    more = f" ({mine.held_out_right} and {of} of {mine.held_out})"
    return [
        _least(f"{form}: right answers of {base}'s, held-out questions", mine.held_out_right / of, least, more),
        Row(
            row=f"{form}: answers with an invented figure",
            figure=f"{mine.invented} of {mine.asked}",
            target="0",
            holds=mine.invented == 0,
        ),
    ]


def _eight_bits(found: Found) -> list[Row]:
    """The article loses 1.8 % without rare texts, 0.6 % with them."""
    rows = []
    for form in (INT8, ONNX):
        for kind, part in found.predicted.get(form, {}).items():
            row = f"{form}: agreement with fp32, {kind} texts"
            rows.append(_least(row, part.share, _FEW, f" ({part.places} places, {part.nats:.4f} nats)"))
        if form in found.predicted:
            every = joined(list(found.predicted[form].values()))
            more = f" ({every.places} places, {every.nats:.4f} nats)"
            rows.append(_least(f"{form}: agreement with fp32, all texts", every.share, _FEW, more))
        if form in found.answered and FP32 in found.answered:
            mine, base = found.answered[form], found.answered[FP32]
            more = f" ({mine.right} and {base.right} of {mine.asked})"
            row = f"{form}: right answers of fp32's"
            rows.append(_least(row, mine.right / base.right if base.right else None, 0.99, more))
            lost = base.sku_right - mine.sku_right
            figure = f"{mine.sku_right} and {base.sku_right} of {mine.sku}"
            row = f"{form}: right answers about article numbers, and fp32's"
            rows.append(Row(row=row, figure=figure, target="none lost", holds=lost <= 0))
    return rows


def _experts(found: Found) -> list[Row]:
    if found.experts is None:
        return []
    share, places = found.experts
    speeds = {rows: found.ratio(EXPERTS, AS_WIDE, speed(rows)) for rows in ROWS}
    return [
        _least(f"{EXPERTS}: agreement with fp32, random weights", share, 0.97, f" ({places} places)"),
        *[_least(f"{EXPERTS}: tok/s of a dense model's, {rows} rows", speeds[rows], 0.9) for rows in ROWS],
    ]


def figures_of(found: Found, form: Form) -> dict[str, str]:
    """Return the figures of one form; those that were not measured are left out."""
    if form.name not in found.measured:
        return {}
    medians = found.measured[form.name].medians()
    figures: dict[str, str] = {
        f"tok/s of {', '.join(map(str, ROWS))} rows": " / ".join(_shown(medians.get(speed(rows))) for rows in ROWS),
        **{name: _shown(medians.get(name)) for name in (FIRST_TEXT, MEMORY, START) if name in medians},
    }
    if (mine := found.answered.get(form.name)) is not None:
        figures["right answers"] = f"{mine.right} of {mine.asked}"
        figures["the model's own"] = f"{mine.by_model_right} of {mine.by_model}"
        figures["with an invented figure"] = str(mine.invented)
    if form.name != FP32 and (parts := found.predicted.get(form.name)):
        every = joined(list(parts.values()))
        figures["agreement with fp32"] = f"{every.share:.3f}"
        figures["divergence from fp32, nats"] = f"{every.nats:.4f}"
    return figures


def page(found: Found) -> str:
    """Return the forms' figures as Markdown: a row a form, a column a figure."""
    by_form = {form.name: figures_of(found, form) for form in found.forms}
    columns = list(dict.fromkeys(name for figures in by_form.values() for name in figures))
    return markdown(["form", *columns], [[name, *map(of.get, columns)] for name, of in by_form.items()])


def _shown(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
