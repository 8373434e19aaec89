"""The policies by name, each in a scheduler of its own; the window is one that `goodput` alone keeps."""

from collections.abc import Callable
from typing import Final

from shared.settings import WindowKind
from workers.schedule.policies.arrivals import FirstCome
from workers.schedule.policies.batches import Batches
from workers.schedule.policies.goodput import Goodput
from workers.schedule.policies.priorities import ByRank, by_cost, by_deadline
from workers.schedule.policy import Costs, Lengths, Policy
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.window import Window

POLICIES: Final = ("goodput", "edf", "sjf", "fcfs-shed", "fcfs-continuous", "sorted-budget", "static")


def build_scheduler(
    name: str, *, limits: SchedulerLimits, costs: Costs, lengths: Lengths, window: Window | None = None
) -> Scheduler:
    """Raises `ValueError` for a name that is not in `POLICIES`."""
    policy = make_policy(name, limits=limits, costs=costs, lengths=lengths, window=window)
    return Scheduler(limits, policy, costs=costs, lengths=lengths)


def make_window(kind: WindowKind, limits: SchedulerLimits) -> Window | None:
    """None: nobody is ever held."""
    return Window(limits.max_prefill_rows, limits.prefill_chunk_tokens) if kind == "adaptive" else None


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
