"""A profile as a flame graph in one SVG file: layers, their parts and operators by width, phase by phase. Pure."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from ops.model.profile.calls import Call, PhaseProfile, layer_name

_WIDTH: Final = 1_200.0
_ROW: Final = 22.0
_TITLE: Final = 34.0
_MARGIN: Final = 12.0
_CHAR: Final = 6.6  # of the 11 px sans-serif that the labels are written in
_LEAST_PX: Final = 0.4
_LEAST_CHARS: Final = 3
_STYLE: Final = (
    "text{font:11px system-ui,sans-serif;fill:#1b1f24}.title{font-size:13px;font-weight:600}"
    ".note{fill:#57606a}rect.part{stroke:#fff;stroke-width:.5}"
    "@media(prefers-color-scheme:dark){.title,.note{fill:#d0d7de}.ground{fill:#0d1117}}"
)
_NAMES: Final[tuple[Callable[[Call], str], ...]] = (layer_name, lambda call: call.part, lambda call: call.operator)
_COLOURS: Final = ("#a5d6ff", "#ffd8b5", "#b4f1b4", "#e2c5ff", "#ffc1cc", "#d8dee4")


def flame_graph(profiles: Sequence[PhaseProfile], calls: Sequence[Call], caption: str) -> str:
    """Each box's width is its share of its phase's operators; pointed at, it tells the milliseconds of one engine
    call."""
    parts: list[str] = []
    top = _TITLE
    for profile in profiles:
        mine = [call for call in calls if call.phase == profile.phase]
        told = f"{profile.phase}: {profile.operators_ms:.2f} ms in operators of {profile.call_ms:.2f} ms a call"
        parts.append(f'<text class="title" x="{_MARGIN:g}" y="{top + 15:g}">{told}</text>')
        px_per_ms = (_WIDTH - 2 * _MARGIN) / (sum(call.ms for call in mine) or 1.0)
        parts += _boxes(mine, 0, _MARGIN, top + _ROW, px_per_ms, profile.engine_calls)
        top += _ROW * (len(_NAMES) + 1.5)
    height = top + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-label="{escape(caption)}"><style>{_STYLE}</style>'
        f'<rect class="ground" width="{_WIDTH:g}" height="{height:g}" fill="#fff"/>'
        f'<text class="note" x="{_MARGIN:g}" y="20">{escape(caption)}</text>{"".join(parts)}</svg>\n'
    )


def _boxes(
    calls: Sequence[Call], depth: int, left: float, top: float, px_per_ms: float, engine_calls: int
) -> Iterator[str]:
    """Calls of one name are one box; under it, theirs."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(_NAMES[depth](call), []).append(call)
    for name, group in groups.items():
        ms = sum(call.ms for call in group)
        width = ms * px_per_ms
        if width >= _LEAST_PX:
            colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
            yield _box(left, top, width, colour, name, f"{name}: {ms / engine_calls:.3f} ms")
            if depth + 1 < len(_NAMES):
                yield from _boxes(group, depth + 1, left, top + _ROW, px_per_ms, engine_calls)
        left += width


def _box(left: float, top: float, width: float, colour: str, name: str, told: str) -> str:
    room = int((width - 4) / _CHAR)
    short = name.rpartition(" ")[2]  # a layer's number
    label = name if len(name) <= room else short if len(short) <= room else ""
    if not label and room > _LEAST_CHARS:
        label = name[: room - 1] + "…"
    text = f'<text x="{left + 3:.1f}" y="{top + 15:.1f}">{escape(label)}</text>' if label else ""
    place = f'x="{left:.2f}" y="{top:g}" width="{width:.2f}" height="{_ROW - 1:g}"'
    return f'<g><title>{escape(told)}</title><rect class="part" {place} fill="{colour}"/>{text}</g>'
