"""Build the worker's scheduler, with the goodput policy and the configured window and reserve."""

from shared.settings import WindowKind
from workers.schedule.goodput.goodput import Goodput
from workers.schedule.goodput.plan import Reserve
from workers.schedule.lengths import OutputLengths
from workers.schedule.policy import Costs
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.window import Window


def build_scheduler(
    *,
    limits: SchedulerLimits,
    costs: Costs,
    lengths: OutputLengths,
    window: Window | None = None,
    long_share: float = 0.0,
) -> Scheduler:
    """Return the scheduler. `long_share`: the share of slots reserved for long requests."""
    reserve = Reserve.from_share(long_share, limits.num_slots)
    policy = Goodput(costs, lengths, num_slots=limits.num_slots, window=window, reserve=reserve)
    return Scheduler(limits, policy, costs=costs, lengths=lengths)


def make_window(kind: WindowKind, limits: SchedulerLimits) -> Window | None:
    """Return the configured window; None if requests are never delayed."""
    return Window(limits.max_prefill_rows, limits.prefill_chunk_tokens) if kind == "adaptive" else None
