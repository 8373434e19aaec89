"""The policies by name, each in a scheduler of its own; and the windows by name, which `goodput` alone keeps."""

from collections.abc import Callable
from typing import Final, assert_never, get_args

from shared.settings import WindowKind
from workers.schedule.bandit import learned, read_table
from workers.schedule.policies.arrivals import FirstCome
from workers.schedule.policies.batches import Batches
from workers.schedule.policies.goodput import Goodput
from workers.schedule.policies.priorities import ByRank, by_cost, by_deadline
from workers.schedule.policy import Costs, Lengths, Policy
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.window import Rule, Window, WindowBounds, adaptive, fixed

POLICIES: Final = ("goodput", "edf", "sjf", "fcfs-shed", "fcfs-continuous", "sorted-budget", "static")

WINDOWS: Final[tuple[WindowKind, ...]] = get_args(WindowKind)
BUSY_MS: Final = 10.0
QUIET_MS: Final = 50.0


def build_scheduler(
    name: str, *, limits: SchedulerLimits, costs: Costs, lengths: Lengths, window: Window | None = None
) -> Scheduler:
    """Raises `ValueError` for a name that is not in `POLICIES`."""
    policy = make_policy(name, limits=limits, costs=costs, lengths=lengths, window=window)
    return Scheduler(limits, policy, costs=costs, lengths=lengths)


def make_window(
    kind: WindowKind, *, limits: SchedulerLimits, costs: Costs, busy_ms: float = BUSY_MS, quiet_ms: float = QUIET_MS
) -> Window | None:
    """None: nobody is ever held."""
    match kind:
        case "off":
            return None
        case "fixed":
            return window_by(fixed, limits=limits, costs=costs, busy_ms=busy_ms, quiet_ms=quiet_ms)
        case "adaptive":
            return window_by(adaptive, limits=limits, costs=costs, busy_ms=busy_ms, quiet_ms=quiet_ms)
        case "learned":
            rule = learned(read_table())
            return window_by(rule, limits=limits, costs=costs, busy_ms=busy_ms, quiet_ms=quiet_ms)
        case _:
            assert_never(kind)


def window_by(rule: Rule, *, limits: SchedulerLimits, costs: Costs, busy_ms: float, quiet_ms: float) -> Window:
    """A window that a rule makes as long as it likes, within the bounds."""
    bounds = WindowBounds(
        busy_ms=busy_ms,
        quiet_ms=quiet_ms,
        max_rows=limits.max_prefill_rows,
        max_tokens=limits.prefill_chunk_tokens,
        stall_ms=limits.decode_stall_ms,
    )
    return Window(rule, bounds, costs)


def make_policy(
    name: str, *, limits: SchedulerLimits, costs: Costs, lengths: Lengths, window: Window | None = None
) -> Policy:
    """Raises `ValueError` for a name that is not in `POLICIES`."""
    slots = limits.num_slots
    makers: dict[str, Callable[[], Policy]] = {
        "goodput": lambda: Goodput(costs, lengths, num_slots=slots, window=window),
        "edf": lambda: ByRank(costs, by_deadline),
        "sjf": lambda: ByRank(costs, by_cost(costs, slots)),
        "fcfs-shed": lambda: FirstCome(costs),
        "fcfs-continuous": lambda: FirstCome(None),
        "sorted-budget": lambda: Batches.sorted_budget(slots, limits.max_running_tokens),
        "static": lambda: Batches.static(slots),
    }
    if name not in makers:
        raise ValueError(f"policy {name!r}: no such policy; choose one of {', '.join(POLICIES)}")
    return makers[name]()
