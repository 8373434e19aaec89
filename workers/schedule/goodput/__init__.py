"""The scheduler as a worker has it: its policy is goodput, with the window that is set."""

from shared.settings import WindowKind
from workers.schedule.goodput.goodput import Goodput
from workers.schedule.lengths import OutputLengths
from workers.schedule.policy import Costs
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.window import Window


def build_scheduler(
    *, limits: SchedulerLimits, costs: Costs, lengths: OutputLengths, window: Window | None = None
) -> Scheduler:
    policy = Goodput(costs, lengths, num_slots=limits.num_slots, window=window)
    return Scheduler(limits, policy, costs=costs, lengths=lengths)


def make_window(kind: WindowKind, limits: SchedulerLimits) -> Window | None:
    """Return the window that is set; None: nobody is ever held."""
    return Window(limits.max_prefill_rows, limits.prefill_chunk_tokens) if kind == "adaptive" else None
