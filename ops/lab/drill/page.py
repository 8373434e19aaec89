"""The report of a drill: a table for a terminal, and an HTML page. Pure."""

from collections.abc import Sequence
from typing import Final

from ops.lab.drill.figures import FaultRow
from ops.lab.drill.schedule import Schedule
from ops.measure.report import Part, report
from ops.measure.runner import Cell, markdown
from shared.nouns import counted

_TITLES: Final = (
    "fault", "phase", "asked", "the workers, in time", "the FAQ, in time", "late", "nothing", "TTFT p50 ms", "p99 ms"
)  # fmt: skip
_TERMS: Final = (
    "The workers, in time: the complete answer by the deadline. The FAQ: its answer instead, by the deadline. Late and "
    "nothing are broken promises. Recovered: from the fault's end until the workers answer well for five seconds."
)


def table(rows: Sequence[FaultRow]) -> str:
    """Return the rows as a table, followed by one sentence per fault."""
    return "\n".join([markdown(_TITLES, _cells(rows)), "", *map(verdict, rows)])


def verdict(row: FaultRow) -> str:
    """Return the result of a fault in a sentence."""
    harmed = sum(phase.late + phase.nothing for phase in row.phases)
    kept = (
        "every question had an answer in time" if not harmed else f"{counted(harmed, 'question')} had no answer in time"
    )
    back = "it did not recover" if row.recovered_s is None else f"recovered after {row.recovered_s:.1f} s"
    ended = "" if row.stopped is None else f"; stopped: {row.stopped}"
    return f"{'holds' if row.holds else 'BROKEN'}: {row.fault}: {kept}, {back}{ended}"


def page(schedule: Schedule, rows: Sequence[FaultRow], command: str, date: str) -> str:
    """Return the HTML file."""
    made = {
        "command": command,
        "fleet": schedule.fleet,
        "asked": f"{schedule.rate:g} questions a second of {schedule.url}",
        "ends early": f"if fewer than {schedule.least:.0%} of the last 20 had an answer in time",
        "date": date,
    }
    parts = (
        Part(title="Results", rows=[[verdict(row)] for row in rows]),
        Part(title="What customers experienced", text=_TERMS, titles=_TITLES, rows=_cells(rows)),
        Part(title="How this was made", pairs=made),
    )
    kept = sum(row.holds for row in rows)
    of_all = counted(len(rows), "fault")
    return report(f"Drill of {schedule.fleet}", f"{kept} of {of_all} left every promise kept.", parts)


def _cells(rows: Sequence[FaultRow]) -> list[list[Cell]]:
    return [
        [
            row.fault, phase.phase, phase.asked, phase.by_workers, phase.instead, phase.late, phase.nothing,
            phase.ttft_p50_ms, phase.ttft_p99_ms,
        ]
        for row in rows
        for phase in row.phases
    ]  # fmt: skip
