"""A run's tables at the terminal."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from ops.evaluation.judging.result import LANGUAGES, Count, Figures, Judged, cells_of, count_of, recall_of

UNHEDGED: Final = "without a hedge"
LADDER: Final = (
    "en_right",
    "en_right_unhedged",
    "zh_right",
    "zh_right_unhedged",
    "invented",
    "invented_by_model",
    "unanswerable_right",
)
"""What is shown of each rung."""


def print_run(console: Console, judged: Sequence[Judged], figures: Figures) -> None:
    """By kind and language; retrieval; the shares."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (
        ("kind", "left"),
        ("language", "left"),
        ("n", "right"),
        ("right", "right"),
        ("share", "right"),
        (UNHEDGED, "right"),
        ("invented", "right"),
    ):
        table.add_column(title, justify="right" if justify == "right" else "left")
    table.add_column("by source")
    for cell in cells_of(judged):
        table.add_row(cell.kind, cell.language, *counts(cell.count))
    table.add_row("all", "", *counts(count_of(judged)), style="bold")
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


def counts(count: Count) -> tuple[str, ...]:
    shares = (f"{part / count.n:.0%}" for part in (count.right, count.right_unhedged))
    return (str(count.n), str(count.right), *shares, str(count.invented), by_source(count))
