"""Run a bench: on uvloop, with clean-up on Ctrl-C, and with its result shown and written."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ops.paths import replaceable

INTERRUPTED_STATUS: Final = 130

Cell = str | int | float | None


def run_bench(work: Callable[[], Awaitable[None]]) -> int:
    """Run a bench to its end and return the exit status. SIGINT and SIGTERM cancel it, and it cleans up."""

    async def main() -> int:
        task = asyncio.ensure_future(work())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return INTERRUPTED_STATUS
        return 0

    return uvloop.run(main())


@contextmanager
def progress_bar(console: Console, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in a terminal; yield a function that sets how many items are done."""
    if not console.is_terminal:  # rich would print an empty line at the end
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def write_json(path: Path | None, result: object) -> None:
    """Write a file. An existing file is either replaced as a whole or left unchanged."""
    if path is None:
        return
    data = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    if not replaceable(path):
        path.write_bytes(data)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_html(path: Path, page: str, console: Console) -> None:
    """Write a report and print its path."""
    path.write_text(page, encoding="utf-8")
    console.print(f"report: {path}", soft_wrap=True, highlight=False)


def markdown(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table for docs/measured.md."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(show(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def show(cell: Cell) -> str:
    """Return a number formatted for people; – if it was not measured."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1_000 else f"{cell:.3g}" if abs(cell) < 1 else f"{cell:.2f}"  # noqa: PLR2004
    return f"{cell:,}" if isinstance(cell, int) else cell


def verdict(value: float | None, target: float, *, at_least: bool = False, failed: int = 0) -> str:
    """Return the target with the verdict. It is missed if requests failed, because their times are not among those
    measured."""
    sign = "≥" if at_least else "≤"
    if failed:
        return f"{sign} {show(target)} missed: {failed:,} failed"
    if value is None:
        return f"{sign} {show(target)} not measured"
    met = value >= target if at_least else value <= target
    return f"{sign} {show(target)} {'met' if met else 'missed'}"
