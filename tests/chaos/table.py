"""A run in numbers: the printed table and the file of `--json`. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ops.measure.environment import Environment
from ops.measure.runner import Cell, markdown
from tests.chaos.ledger.requests import Breach
from tests.chaos.ledger.verdict import GRACE_S, RETURN_GRACE_S, Verdict


class FaultRow(Struct, frozen=True, kw_only=True):
    """Faults of one kind that were applied; `back_s`: the longest time until all processes ran again. None for the
    network's."""

    kind: str
    count: int
    back_s: float | None


class Conditions(Struct, frozen=True, kw_only=True):
    """`silence_s`: the longest time without any answer's end, while the load lasted. `client_lag_s`: how late the
    clients' own event loop was, at worst."""

    seed: int
    minutes: float
    rate: float
    clients: int
    brokers: int
    silence_s: float
    client_lag_s: float
    environment: Environment


class Report(Struct, frozen=True, kw_only=True):
    holds: bool
    invariants: dict[str, int]
    requests: int
    accepted: int
    answers: dict[str, int]
    refused: dict[str, int]
    asked_again: int
    told_anew: int
    recovered: int
    not_recovered: int
    farewells: int
    latest_ms: float | None
    excused: int
    excused_in_time_at_gateway: int
    excused_widest_ms: float
    faults: list[FaultRow]
    conditions: Conditions
    met: dict[str, int] = {}


def report(
    verdict: Verdict, faults: Sequence[FaultRow], conditions: Conditions, met: Mapping[str, int] | None = None
) -> Report:
    """`met`: what the faults affected, as counts by name."""
    excused = verdict.excused
    return Report(
        holds=verdict.holds,
        invariants={breach.name.lower(): verdict.count(breach) for breach in Breach},
        requests=verdict.requests,
        accepted=verdict.accepted,
        answers=verdict.endings,
        refused=verdict.refused,
        asked_again=verdict.asked_again,
        told_anew=verdict.told_anew,
        recovered=verdict.recovered,
        not_recovered=verdict.not_recovered,
        farewells=verdict.farewells,
        latest_ms=None if verdict.latest_s is None else round(verdict.latest_s * 1_000, 1),
        excused=excused.requests,
        excused_in_time_at_gateway=excused.in_time_at_gateway,
        excused_widest_ms=round(excused.widest_s * 1_000, 1),
        faults=list(faults),
        conditions=conditions,
        met=dict(met or {}),
    )


def tables(found: Report) -> str:
    """Three tables for the terminal and for docs/reliability.md."""
    invariants = [
        (f"{breach.value}", found.invariants[breach.name.lower()], _holds(found.invariants[breach.name.lower()]))
        for breach in Breach
    ]
    counts: list[tuple[str, Cell]] = [
        ("requests", found.requests),
        ("accepted", found.accepted),
        *((f"answered: {ending}", count) for ending, count in sorted(found.answers.items())),
        *((f"refused: {code}", count) for code, count in sorted(found.refused.items())),
        ("asked again by event_id", found.asked_again),
        ("told anew from the beginning", found.told_anew),
        ("resumed by cursor, recovered", found.recovered),
        ("resumed by cursor, not recovered", found.not_recovered),
        ("clients told that their gateway closes (4001)", found.farewells),
        (f"last terminal event after its deadline, ms (≤ {GRACE_S * 1_000:.0f})", found.latest_ms),
        ("excused: the client was away at its deadline", found.excused),
        ("– of these answered in time at the gateway", found.excused_in_time_at_gateway),
        (f"– heard after the client's return, ms (≤ {RETURN_GRACE_S * 1_000:.0f})", found.excused_widest_ms),
        *((name, count) for name, count in found.met.items() if count),
        ("longest time without any answer's end, s", found.conditions.silence_s),
        ("the clients' own event loop was late, ms", round(found.conditions.client_lag_s * 1_000, 1)),
    ]
    faults = [(row.kind, row.count, row.back_s) for row in found.faults]
    return "\n\n".join(
        (
            markdown(("invariant: none", "found", "holds"), invariants),
            markdown(("count", ""), counts),
            markdown(("fault", "count", "all up again after s, at worst"), faults),
        )
    )


def _holds(count: int) -> str:
    return "no" if count else "yes"
