"""The scheduler as a worker has it: its policy is goodput, with the window and the reserve that are set."""

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
    """Return the scheduler. `long_share` of the slots are kept for long requests."""
    reserve = Reserve.of(long_share, limits.num_slots)
    policy = Goodput(costs, lengths, num_slots=limits.num_slots, window=window, reserve=reserve)
    return Scheduler(limits, policy, costs=costs, lengths=lengths)


def make_window(kind: WindowKind, limits: SchedulerLimits) -> Window | None:
    """Return the window that is set; None: nobody is ever held."""
    return Window(limits.max_prefill_rows, limits.prefill_chunk_tokens) if kind == "adaptive" else None
