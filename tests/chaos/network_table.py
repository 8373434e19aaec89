"""The cells of the network's faults in numbers: what is printed, and what `--json` writes. Pure."""

from dataclasses import dataclass

from msgspec import Struct

from ops.measure.environment import Environment
from ops.measure.runner import Cell as Shown
from ops.measure.runner import markdown
from tests.chaos.faults.cells import Cell, Hop
from tests.chaos.ledger.requests import Breach
from tests.chaos.ledger.verdict import GRACE_S, Verdict


@dataclass(frozen=True, slots=True)
class Passed:
    """What proxies met so far: how many faults, connections that were ended by them, bytes that were carried."""

    faults: int = 0
    cut: int = 0
    carried_bytes: int = 0

    def since(self, before: "Passed") -> "Passed":
        return Passed(self.faults - before.faults, self.cut - before.cut, self.carried_bytes - before.carried_bytes)


class CellRow(Struct, frozen=True, kw_only=True):
    """One fault on one hop. `faults`, `cut` and `carried_bytes` as in `Passed`; `latest_ms`: the last terminal event
    after its deadline (negative: before it); `back_s`: after the load, until every process was ready."""

    cell: str
    holds: bool
    invariants: dict[str, int]
    requests: int
    accepted: int
    answers: dict[str, int]
    refused: dict[str, int]
    latest_ms: float | None
    excused: int
    excused_widest_ms: float
    recovered: int
    not_recovered: int
    asked_again: int
    faults: int
    cut: int
    carried_bytes: int
    back_s: float


class NetworkReport(Struct, frozen=True, kw_only=True):
    seed: int
    holds: bool
    cells: list[CellRow]
    environment: Environment


def row_of(cell: Cell, verdict: Verdict, *, passed: Passed, back_s: float) -> CellRow:
    """A cell does not hold where its fault met no byte or nothing was accepted, which shows nothing; nor where a client
    was excused, unless it is its own way that was bad."""
    excused = verdict.excused
    met = passed.faults > 0 and passed.carried_bytes > 0
    rightly_excused = excused.requests == 0 or cell.hop is Hop.CLIENT
    return CellRow(
        cell=str(cell),
        holds=verdict.holds and met and rightly_excused,
        invariants={breach.name.lower(): verdict.count(breach) for breach in Breach},
        requests=verdict.requests,
        accepted=verdict.accepted,
        answers=verdict.endings,
        refused=verdict.refused,
        latest_ms=None if verdict.latest_s is None else round(verdict.latest_s * 1_000, 1),
        excused=excused.requests,
        excused_widest_ms=round(excused.widest_s * 1_000, 1),
        recovered=verdict.recovered,
        not_recovered=verdict.not_recovered,
        asked_again=verdict.asked_again,
        faults=passed.faults,
        cut=passed.cut,
        carried_bytes=passed.carried_bytes,
        back_s=round(back_s, 2),
    )


def table(found: NetworkReport) -> str:
    """For the terminal and for docs/reliability.md."""
    header = (
        "fault:hop", "requests", "model, whole", "model, cut", "fallback", "refused",
        f"last end after its deadline, ms (≤ {GRACE_S * 1_000:.0f})", "excused", "resumed", "asked again",
        "connections ended", "kB through it", "invariants broken",
    )  # fmt: skip
    return markdown(header, [_shown(row) for row in found.cells])


def _shown(row: CellRow) -> list[Shown]:
    by_model = {ending: count for ending, count in row.answers.items() if ending.startswith("model")}
    cut = sum(count for ending, count in by_model.items() if ending.endswith("deadline"))
    broken = [f"{name} {count}" for name, count in row.invariants.items() if count]
    return [
        row.cell,
        row.requests,
        sum(by_model.values()) - cut,
        cut,
        sum(row.answers.values()) - sum(by_model.values()),
        sum(row.refused.values()),
        row.latest_ms,
        row.excused,
        row.recovered + row.not_recovered,
        row.asked_again,
        row.cut,
        round(row.carried_bytes / 1_000),
        ", ".join(broken) or ("none" if row.holds else "nothing accepted or met, or excused without cause"),
    ]
