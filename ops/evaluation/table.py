"""A run's tables at the terminal."""

from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from ops.evaluation.judging.fit import Fit
from ops.evaluation.judging.result import LANGUAGES, Count, Figures, Judged, cells_of, count_of, recall_of
from ops.evaluation.judging.shares import Share
from ops.measure.intervals import wilson


def print_run(console: Console, judged: Sequence[Judged], figures: Figures) -> None:
    """Print the figures by kind and language, the retrieval and the shares."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("kind")
    table.add_column("language")
    for title in ("n", "right", "share", "without a hedge", "invented"):
        table.add_column(title, justify="right")
    table.add_column("by source")
    for cell in cells_of(judged):
        table.add_row(cell.kind, cell.language, *_counts(cell.count))
    table.add_row("all", "", *_counts(count_of(judged)), style="bold")
    console.print(table)
    console.print()
    for language in LANGUAGES:
        found = recall_of(judged, language)
        if found.n:
            console.print(
                f"retrieval {language}: recall@1 {_share(found.at_1)}, recall@3 {_share(found.at_3)} of {found.n}"
            )
    console.print(_in_words(figures), highlight=False)


def print_shares(console: Console, shares: Mapping[str, Share]) -> None:
    """Print what a shop counts, each share with its 95 % interval and n."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("share")
    for title in ("", "95 %", "n"):
        table.add_column(title, justify="right")
    for name, share in shares.items():
        low, high = wilson(share.some, share.n)
        table.add_row(name, _share(share.value), f"{low:.2f}–{high:.2f}", str(share.n))
    console.print()
    console.print(table)


def print_fit(console: Console, fitted: Fit) -> None:
    """Print what speaks for and against each threshold."""
    for title, rows in (("confident", fitted.confident_rows), ("weak", fitted.weak_rows)):
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for name in rows[0].__struct_fields__:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*(f"{value:g}" for value in msgspec.structs.astuple(row)))
        console.print(table)


def _in_words(figures: Figures) -> str:
    return " · ".join(f"{name} {_share(getattr(figures, name))}" for name in Figures.__struct_fields__)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _counts(count: Count) -> tuple[str, ...]:
    shares = (f"{part / count.n:.0%}" for part in (count.right, count.right_unhedged))
    by_source = ", ".join(f"{source} {number}" for source, number in count.by_source.items())
    return (str(count.n), str(count.right), *shares, str(count.invented), by_source)
