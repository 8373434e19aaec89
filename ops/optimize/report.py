"""What a quantisation found, as JSON and as tables at the terminal."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from ops.model.numerics.evaluate import Score
from ops.model.numerics.plan import Left
from ops.texts.calibration_set import Kind
from workers.graph.eight_bit.grids import GridName

REPORT: Final = "quantization.json"


class PlaceReport(Struct, frozen=True, kw_only=True):
    """A place of the MLP: `gate_up` or `down` of a layer.

    `error` is that of its products (the root of the mean of each token's squared relative error), `saturation` the
    share of values beyond the outermost levels, `strength` SmoothQuant's alpha, `clip` the share of the largest
    magnitude that is kept, `step` that of the activations: all told of products of 8 bits. `left` are the place's
    matrices that are not multiplied so: of whose activations stay fp16 beside 8-bit weights, or fp16 altogether.
    """

    layer: int
    place: str
    error: float
    saturation: float
    strength: float
    clip: float
    step: float
    left: Mapping[str, Left]


class SearchReport(Struct, frozen=True, kw_only=True):
    """A trial of the search: places with 8-bit weights alone, places in fp16, and the agreement on its texts."""

    weights_alone: int
    fp16: int
    agreement: float


class Report(Struct, frozen=True, kw_only=True):
    """`mlp` is what its products are of; `weights_share` is the memory of all weights by that of the same model in
    float16."""

    model: str
    mlp: GridName
    seed: int
    bound: float
    calibration: str
    calibration_texts: int
    calibration_shares: Mapping[Kind, float]
    excluded: str
    weights_bytes: int
    weights_share: float
    scores: Mapping[str, Score]
    scores_without_rare: Mapping[str, Score] | None
    search: tuple[SearchReport, ...]
    places: tuple[PlaceReport, ...]


def show(report: Report, console: Console) -> None:
    """The places, then the slices."""
    console.print(_places_table(report.places))
    console.print(scores_table("held-out texts", report.mlp, report.scores))
    if report.scores_without_rare is not None:
        console.print(
            scores_table("the same, calibrated on common texts alone", report.mlp, report.scores_without_rare)
        )
    memory = f"weights: {report.weights_bytes / 1e6:.1f} MB, {report.weights_share:.3f} of float16's"
    # Of `0:up` rich would make a picture.
    console.print(f"{memory}; not in 8 bits on both sides: {report.excluded}", emoji=False, soft_wrap=True)


def scores_table(title: str, mlp: GridName, scores: Mapping[str, Score]) -> Table:
    table = _table(title, ("slice", "tokens", "perplexity fp32", mlp, "growth", "agreement", "of the texts"))
    for name, score in scores.items():
        table.add_row(
            name,
            f"{score.answer_tokens} + {score.text_tokens}",
            f"{score.perplexity_fp32:.2f}",
            f"{score.perplexity:.2f}",
            f"{score.perplexity_growth:+.2%}",
            f"{score.answer_agreement:.4f}",
            f"{score.text_agreement:.4f}",
        )
    return table


def _places_table(places: Sequence[PlaceReport]) -> Table:
    table = _table("MLP", ("layer", "place", "error", "saturation", "alpha", "clip", "left"))
    for place in places:
        table.add_row(
            str(place.layer),
            place.place,
            f"{place.error:.4f}",
            f"{place.saturation:.4%}",
            f"{place.strength:.1f}",
            f"{place.clip:.2f}",
            ", ".join(sorted(set(place.left.values()))),
        )
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in {"slice", "place", "left"} else "right")
    return table
