"""A run's tables at the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ops.evaluation.result import LANGUAGES, Cell, Count, Figures, Judged, cells_of, count_of, recall_of


def print_run(console: Console, judged: Sequence[Judged], figures: Figures) -> None:
    """By kind and language; retrieval; the shares."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (
        ("kind", "left"),
        ("language", "left"),
        ("n", "right"),
        ("right", "right"),
        ("share", "right"),
    ):
        table.add_column(title, justify="right" if justify == "right" else "left")
    table.add_column("invented", justify="right")
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
                f"retrieval {language}: recall@1 {share(found.at_1)}, recall@3 {share(found.at_3)} of {found.n}"
            )
    console.print(in_words(figures), highlight=False)


def in_words(figures: Figures) -> str:
    """The shares in a line."""
    return " · ".join(f"{name} {share(getattr(figures, name))}" for name in Figures.__struct_fields__)


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def by_source(count: Count) -> str:
    return ", ".join(f"{source} {number}" for source, number in count.by_source.items())


def rows(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    return [(cell.kind, cell.language, *_counts(cell.count)) for cell in cells]


def _counts(count: Count) -> tuple[str, str, str, str, str]:
    return (str(count.n), str(count.right), f"{count.right / count.n:.0%}", str(count.invented), by_source(count))
