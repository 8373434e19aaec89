"""Draw what became of each row's requests: bars in one SVG file that needs nothing else. Pure."""

from collections.abc import Sequence
from html import escape
from typing import Final

from ops.lab.simulate.rows import SimulationRow

_LEFT: Final = 190.0
_BAR: Final = 460.0
_RIGHT: Final = 80.0
_LINE: Final = 22.0
_HEAD: Final = 34.0
_STYLE: Final = """
svg { color-scheme: light dark; }
.paper { fill: light-dark(#fdfcf9, #14171a); }
text { fill: light-dark(#3a4246, #b9c2c4); font: 400 12px/1 system-ui, sans-serif; }
.answer { fill: #1b7f5c; }
.late { fill: #c9622c; }
.fallback { fill: #7d93a8; }
.refused { fill: #8a3b5e; }
"""
_PARTS: Final = (("answer", "in deadline"), ("late", "late"), ("fallback", "fallback"), ("refused", "refused"))


def plot(rows: Sequence[SimulationRow]) -> str:
    """Return a bar a row, in the rows' order: the shares of its outcomes, and how many were answered in time."""
    width, height = _LEFT + _BAR + _RIGHT, _HEAD + _LINE * len(rows) + 8
    bars = "".join(_bar(row, _HEAD + _LINE * number) for number, row in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"><style>{_STYLE}</style>'
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>{_legend()}{bars}</svg>\n'
    )


def _legend() -> str:
    return "".join(
        f'<rect class="{kind}" x="{_LEFT + 115 * at:g}" y="8" width="12" height="12"/>'
        f'<text x="{_LEFT + 115 * at + 18:g}" y="18">{label}</text>'
        for at, (kind, label) in enumerate(_PARTS)
    )


def _bar(row: SimulationRow, top: float) -> str:
    load = "" if row.load is None else f" {row.load:g}×"
    parts, left = [f'<text x="8" y="{top + 13:g}">{escape(f"{row.trace}{load} {row.policy}")}</text>'], _LEFT
    counts = (row.model_in_deadline, row.model_late, row.fallback, row.refused)
    for (kind, label), count in zip(_PARTS, counts, strict=True):
        share = _BAR * count / max(row.requests, 1)
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:g}" width="{share:.1f}" height="{_LINE - 6:g}">'
            f"<title>{label}: {count:,}</title></rect>"
        )
        left += share
    parts.append(f'<text x="{_LEFT + _BAR + 8:g}" y="{top + 13:g}">{row.model_in_deadline:,}</text>')
    return "".join(parts)
