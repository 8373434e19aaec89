"""Decode and prefill of every engine against the batch, as one SVG file that needs nothing else. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from ops.measure.plot_file import plot_file
from ops.measure.svg import Axis, Plot, linear
from tests.bench.engines.rows import EngineRow, Sizes

_WIDTH: Final = 720.0
_HEIGHT: Final = 330.0
_GAP: Final = 24.0
_RIGHT: Final = 150.0
# Each colour in light and in dark.
_COLOURS: Final = (
    ("#0b6a4f", "#67cfa8"),
    ("#2f6690", "#82b4dc"),
    ("#c4642d", "#e3935f"),
    ("#6d5a9c", "#b2a2de"),
    ("#94701a", "#d5b263"),
    ("#7d3b52", "#c5839b"),
    ("#5d676b", "#9aa5a8"),
)
_STYLE: Final = """\
.dot { fill: light-dark(#fdfcf9, #14171a); stroke: var(--c); stroke-width: 1.6; }
"""


def plot_of(rows: Sequence[EngineRow], sizes: Sizes) -> str:
    """Two drawings, one above the other; a line for each engine and precision."""
    tokens = f"prompts of {sizes.prompt_tokens} tokens, {sizes.new_tokens} new"
    drawings = (
        _drawing(rows, f"decode, tokens a second of all rows: {tokens}", lambda row: row.decode_tok_s),
        _drawing(rows, f"prefill, prompt tokens a second: {tokens}", lambda row: row.prefill_tok_s),
    )
    height = len(drawings) * (_HEIGHT + _GAP)
    tops = [_GAP / 2 + index * (_HEIGHT + _GAP) for index in range(len(drawings))]
    placed = "".join(
        f'<svg x="0" y="{top:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}">{drawing}</svg>'
        for top, drawing in zip(tops, drawings, strict=True)
    )
    return plot_file(placed, width=_WIDTH, height=height, style=_STYLE + _colours())


def _drawing(rows: Sequence[EngineRow], title: str, value: Callable[[EngineRow], float]) -> str:
    batches = sorted({row.batch for row in rows})
    low, high = (batches[0], batches[-1]) if len(batches) > 1 else (batches[0] / 2, batches[0] * 2)
    across = Axis("batch", low, high, tuple(map(float, batches)), log=True)
    plot = Plot(across, linear(title, [value(row) for row in rows]), title, width=_WIDTH, height=_HEIGHT, right=_RIGHT)
    labels = list(dict.fromkeys((row.engine, row.precision) for row in rows))
    for index, label in enumerate(labels):
        points = [(float(row.batch), value(row)) for row in rows if (row.engine, row.precision) == label]
        plot.line(sorted(points), f"e-{index % len(_COLOURS)}", " ".join(label), dots=True)
    return plot.text()


def _colours() -> str:
    return "\n".join(
        f".e-{index} {{ --c: light-dark({one}, {other}); }}" for index, (one, other) in enumerate(_COLOURS)
    )
