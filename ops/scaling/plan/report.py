"""The plan as tables. Pure."""

from msgspec import Struct

from ops.measure.runner import Cell, markdown
from ops.scaling.plan.limits import Limit, Size
from ops.scaling.plan.sizes import Demand, Plan
from ops.scaling.plan.worker_rate import Mix, Point


class WhatIf(Struct, frozen=True, kw_only=True):
    """What `times` the peak would need, and the share that the planned workers would answer in time at that load. All
    other questions would get the fallback immediately."""

    times: float
    per_s: float
    workers: int
    cost_per_hour: float | None
    attainment_as_planned: float


class Formulas(Struct, frozen=True, kw_only=True):
    """The results of formulas, to compare with the simulation. `open_workers`: M/G/k with slots as servers.
    `chats_per_s`: the law of closed systems, if chats were given."""

    open_workers: int
    busy_slots: float
    chats_per_s: float | None


class Result(Struct, frozen=True, kw_only=True):
    """The result as `--json` writes it."""

    demand: Demand
    worker: Point
    points: list[Point]
    plan: Plan
    formulas: Formulas
    what_if: list[WhatIf]
    curve: list[Size]
    limits: list[Limit]
    assumptions: dict[str, str]


def tables(result: Result, mix: Mix, slots: int) -> str:
    plan, worker = result.plan, result.worker
    parts: list[tuple[Cell, ...]] = [
        ("workers", plan.workers, f"each carries {worker.per_s:.2f} questions/s at {worker.attainment:.1%} in time"),
        ("partitions of each request topic", plan.partitions, "as many workers at most can share them"),
        (
            "gateways",
            plan.gateways,
            f"{plan.deltas_per_s:,.0f} deltas/s; {plan.gateway_mib:,.0f} MiB for connections each",
        ),
        ("brokers", plan.brokers, f"{plan.kafka_mb_per_s:,.2f} MB/s before replication"),
        (
            "Redis, GiB",
            None if plan.redis_mib is None else round(plan.redis_mib / 1024, 1),
            f"{result.demand.kept:,.0f} conversations" if plan.redis_mib is not None else "prepare the model to know",
        ),
    ]
    if plan.cost_per_hour is not None:
        parts.append(("cost an hour", round(plan.cost_per_hour, 2), "of what was priced"))
    return "\n\n".join(
        (
            markdown(("part", "how many", "because"), parts),
            markdown(("by formula", "", "it says"), _formula_rows(result, mix, slots)),
            markdown(
                ("times the peak", "questions/s", "workers for it", "cost an hour", "in time with the planned workers"),
                [
                    (f"{row.times:g}", row.per_s, row.workers, row.cost_per_hour, f"{row.attainment_as_planned:.1%}")
                    for row in result.what_if
                ],
            ),
            _growth(result.curve),
            _limits(result.limits),
        )
    )


def _growth(curve: list[Size]) -> str:
    rows = [(row.workers, row.per_s, row.chats, row.gateways, row.brokers, row.redis_gib) for row in curve]
    return markdown(("workers", "questions/s", "chats", "gateways", "brokers", "Redis, GiB"), rows)


def _limits(limits: list[Limit]) -> str:
    rows = [(limit.what, limit.workers, limit.per_s, limit.chats, limit.remedy) for limit in limits]
    return markdown(("what is reached first", "at workers", "questions/s", "chats", "then"), rows)


def _formula_rows(result: Result, mix: Mix, slots: int) -> list[tuple[Cell, ...]]:
    formulas, plan = result.formulas, result.plan
    rows: list[tuple[Cell, ...]] = [
        (
            "Little's law",
            f"{formulas.busy_slots:,.1f}",
            f"slots busy at the peak, of {plan.workers * slots:,} (λ·S, S {mix.service_s:.2f} s)",
        ),
        (
            "M/G/k",
            formulas.open_workers,
            "workers, had all one queue; but a partition waits for its worker, and who would wait too long has the FAQ",
        ),
    ]
    if formulas.chats_per_s is not None:
        rows.append(
            (
                "λ = (N/T)·1/(1+ρ)",
                f"{formulas.chats_per_s:,.2f}",
                "questions/s on average; it knows no burst, and takes the answer's time as given",
            )
        )
    return rows
