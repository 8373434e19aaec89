"""A plot as an SVG file that needs nothing else: paper, type and lines, light and dark. Pure."""

from typing import Final

_STYLE: Final = """
svg { color-scheme: light dark; }
.paper { fill: light-dark(#fdfcf9, #14171a); }
text { fill: light-dark(#5d676b, #9aa5a8); font: 400 12px/1 system-ui, "Segoe UI", Roboto, sans-serif; }
text.x { text-anchor: middle; }
text.y { text-anchor: end; }
text.name { fill: var(--c); font-weight: 500; }
.axis { fill: none; stroke: light-dark(#5d676b, #9aa5a8); }
.grid, .thread { fill: none; stroke: light-dark(#dcd8cf, #30373b); }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; }
"""


def plot_file(drawing: str, *, width: float, height: float, style: str) -> str:
    """`drawing` is of `ops.measure.svg`; `style` gives its lines their colours, as `--c`."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"><style>{_STYLE}{style}</style>'
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>{drawing}</svg>\n'
    )
