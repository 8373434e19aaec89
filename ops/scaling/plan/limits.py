"""Find the settings' limits that a growing system reaches first, by its number of workers. Pure."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from ops.scaling.plan.sizes import Plan
from shared.settings import Settings

MOST_WORKERS: Final = 100
MOST_CONNECTIONS: Final = 100_000


class Limit(Struct, frozen=True, kw_only=True):
    """A limit of the settings. `workers`, `per_s` and `chats` are the largest values that it allows; None: more than
    the largest that was tried. `remedy` is what raises the limit."""

    what: str
    workers: int | None
    per_s: float | None
    chats: int | None
    remedy: str


class Size(Struct, frozen=True, kw_only=True):
    """A system with this number of workers, and the other parts that it needs."""

    workers: int
    per_s: float
    chats: int
    gateways: int
    brokers: int
    redis_gib: float | None


Sized = Callable[[float], tuple[Plan, int]]
"""Return the plan for a number of questions a second, and how many customers are then connected."""


def curve(sized: Sized, per_s_of_one: float, counts: tuple[int, ...]) -> list[Size]:
    """Return the sizes of systems with these numbers of workers, each with a load of `per_s_of_one`."""
    rows: list[Size] = []
    for workers in counts:
        plan, chats = sized(workers * per_s_of_one)
        rows.append(
            Size(
                workers=workers,
                per_s=workers * per_s_of_one,
                chats=chats,
                gateways=plan.gateways,
                brokers=plan.brokers,
                redis_gib=None if plan.redis_mib is None else plan.redis_mib / 1024,
            )
        )
    return rows


def limits(sized: Sized, per_s_of_one: float, settings: Settings) -> list[Limit]:
    """Return the limits of the settings, the one that is reached first at the beginning."""
    kafka = settings.kafka
    found = [
        _limit(
            f"REPLYLINE_KAFKA__REQUEST_PARTITIONS={kafka.request_partitions}: a worker each at most",
            "replyline topics grow --partitions N",
            lambda workers, _plan, _chats: workers <= kafka.request_partitions,
            sized,
            per_s_of_one,
        ),
        _limit(
            f"REPLYLINE_KAFKA__REPLY_PARTITIONS={kafka.reply_partitions}: a gateway each",
            "REPLYLINE_KAFKA__REPLY_PARTITIONS, before the topics are created",
            lambda _workers, plan, _chats: plan.gateways <= kafka.reply_partitions,
            sized,
            per_s_of_one,
        ),
        _limit(
            f"{MOST_CONNECTIONS:,} connections",
            f"a gateway for each {settings.gateway.max_connections:,} (REPLYLINE_GATEWAY__MAX_CONNECTIONS)",
            lambda _workers, _plan, chats: chats <= MOST_CONNECTIONS,
            sized,
            per_s_of_one,
        ),
    ]
    return sorted(found, key=lambda limit: limit.workers if limit.workers is not None else 10 * MOST_WORKERS)


def _limit(what: str, remedy: str, holds: Callable[[int, Plan, int], bool], sized: Sized, per_s_of_one: float) -> Limit:
    for workers in range(1, 10 * MOST_WORKERS + 1):
        plan, chats = sized(workers * per_s_of_one)
        if not holds(workers, plan, chats):
            per_s = (workers - 1) * per_s_of_one
            return Limit(what=what, workers=workers - 1, per_s=per_s, chats=sized(per_s)[1], remedy=remedy)
    return Limit(what=what, workers=None, per_s=None, chats=None, remedy=remedy)
