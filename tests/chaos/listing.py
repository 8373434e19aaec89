"""`replyline chaos list`: the menu (tests/chaos/faults/menu.py) as it is on this machine."""

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.chaos.faults.menu import MENU


class ListedFault(Struct, frozen=True, kw_only=True):
    """One line of `--json`. `lacks`: what is missing here, and what to type; null: it can be had."""

    fault: str
    does: str
    holds: str
    alert: str | None
    runbook: str | None
    quiet: str
    root: bool
    lacks: str | None


def listed(lacks: str | None) -> list[ListedFault]:
    """`lacks`: of each alike (`tests.chaos.faults.menu.NEEDED`)."""
    return [
        ListedFault(
            fault=dish.kind.value,
            does=dish.does,
            holds=dish.holds,
            alert=dish.alert,
            runbook=dish.runbook,
            quiet=dish.quiet,
            root=False,
            lacks=lacks,
        )
        for dish in MENU
    ]


def show(faults: list[ListedFault], console: Console) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in faults:
        wakes = f"alert: {one.alert}, {one.runbook}" if one.alert is not None else f"no alert: {one.quiet}"
        table.add_row(one.fault, escape(f"{one.does}\nholds: {one.holds}\n{wakes}"))
    console.print(table, highlight=False)
    lacks = {one.lacks for one in faults if one.lacks is not None}
    for line in sorted(lacks) or ["All of them can be had on this machine; none needs root."]:
        console.print(escape(line), highlight=False)
