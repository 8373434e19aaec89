"""Check that a GPU has its planned reserve left after an engine has allocated its memory."""

from typing import Final

from shared.telemetry.logs import get_logger
from workers.engine.memory_plan import MemoryPlan

_MIB: Final = 1 << 20


def tell_reserve(plan: MemoryPlan, device: str, free_bytes: int) -> None:
    """Log the free memory: a warning with the remedy if it is below the plan's reserve.

    The engine serves in any case, since it allocates nothing more.
    """
    short = plan.short_reserve(free_bytes)
    if short is not None:
        get_logger().warning("memory_reserve_short", device=device, cause=short.describe(), action=short.remedy)
        return
    get_logger().info("memory_left", device=device, free_mib=free_bytes // _MIB, reserve_mib=plan.reserve_bytes // _MIB)
