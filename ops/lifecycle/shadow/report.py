"""Compare a version's shadow answers with the live ones, in a table and on a page. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ops.measure.plot import Line, Plot
from ops.measure.quantiles import Quantiles, quantiles
from ops.measure.report import Part, report
from ops.measure.runner import Cell
from shared.wire.reports import Observation
from shared.wire.shadow import Comparison

COLUMNS: Final = ("", "p50", "p95", "p99")
TERMS: Final = (
    "The score is the share of tokens that both answers have in one order; 1 is the same answer. Half precision and "
    "the order of a batch change a word without fault. A shadow's worker yields to all others, as its times show."
)
_SPREADS: Final[Mapping[str, Callable[[Comparison], float | None]]] = {
    "characters from the first difference on": lambda each: 1.0 - each.same_chars,
    "tokens from the first difference on": lambda each: 1.0 - each.same_tokens,
    "1 - score": lambda each: 1.0 - each.score,
    "tokens live": lambda each: each.live_tokens,
    "tokens of the shadow": lambda each: each.tokens,
    "first text live, ms": lambda each: each.live_ttft_ms,
    "whole answer live, ms": lambda each: each.live_total_ms,
    "whole answer of the shadow, ms": lambda each: each.total_ms,
}


class Figures(Struct, frozen=True, kw_only=True):
    """`unanswered` shadows failed, or came too late. `unfounded` are facts that nothing bears out. `spreads` are of the
    compared answers."""

    revision: str
    live_revisions: tuple[str, ...]
    compared: int
    unanswered: int
    equal: int
    live_unfounded: int
    unfounded: int
    spreads: dict[str, Quantiles]


def figures(revision: str, seen: Sequence[Observation]) -> Figures:
    """Return the figures of a version's shadow answers."""
    found = [each.compared for each in seen if each.compared is not None]
    first = [each.ttft_ms for each in seen if each.compared is not None and each.ttft_ms is not None]
    spreads = {
        name: quantiles(value for each in found if (value := of(each)) is not None) for name, of in _SPREADS.items()
    }
    return Figures(
        revision=revision,
        live_revisions=tuple(sorted({each.live_revision for each in found})),
        compared=len(found),
        unanswered=len(seen) - len(found),
        equal=sum(each.equal for each in found),
        live_unfounded=sum(each.live_unfounded for each in found),
        unfounded=sum(each.unfounded for each in found),
        spreads=spreads | {"first text of the shadow, ms": quantiles(first)},
    )


def headline(of: Figures) -> dict[str, str]:
    """Return the figures above the table."""
    return {
        "answers compared": f"{of.compared:,}",
        "equal": f"{of.equal / of.compared:.1%}" if of.compared else "–",
        "without an answer in time": f"{of.unanswered:,}",
        "facts that nothing bears out, live / shadow": f"{of.live_unfounded:,} / {of.unfounded:,}",
    }


def rows(of: Figures) -> list[list[Cell]]:
    """Return the table's rows."""
    return [[name, each.p50, each.p95, each.p99] for name, each in of.spreads.items()]


def page(of: Figures, seen: Sequence[Observation]) -> str:
    """Return the page as one HTML file, with how far the answers agree."""
    found = [each.compared for each in seen if each.compared is not None]
    lines = [
        Line("score", _curve([each.score for each in found])),
        Line("tokens before the first difference", _curve([each.same_tokens for each in found]), colour=1),
        Line("characters before it", _curve([each.same_chars for each in found]), colour=5),
    ]
    plot = Plot(title="Alike, as a share of the answer", x="share of the answers, %", y="", lines=lines)
    live = ", ".join(each or "unnamed" for each in of.live_revisions)
    parts = [
        Part(title="How far they agree", text=TERMS, plots=[plot] if found else ()),
        Part(title="Figures", titles=COLUMNS, rows=rows(of)),
    ]
    return report(f"Version {of.revision} as a shadow", f"Compared with {live}.", parts, headline=headline(of))


def _curve(shares: Sequence[float]) -> list[tuple[float, float]]:
    """Return the shares in their order, over the part of the answers that have no more."""
    return [(100.0 * (place + 1) / len(shares), share) for place, share in enumerate(sorted(shares))]
