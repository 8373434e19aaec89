"""`replyline bench scheduler`: what the scheduler itself takes of a step, in pure Python, beside no engine at all.

All slots decode and so many requests wait, all of which can be met, while others come and go: the case in which a plan
is the longest. Costs are those of the cost model's prior; time is virtual, the scheduler's own is measured.
"""

import time
from pathlib import Path
from typing import Final

from ops.measure.environment import environment
from ops.measure.quantiles import quantiles
from ops.measure.runner import check_writable, markdown, verdict, write_json
from shared.process.lifetime import settle_heap
from shared.wire.deadline import Deadline
from workers.engine import Sampling
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import build_scheduler
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.sequence import Sequence

TARGET_US: Final = 150.0
_STOP: Final = -1
_TOKEN: Final = 7
_PROMPT_TOKENS: Final = 60
_OUTPUT_TOKENS: Final = 48
_HORIZON_MS: Final = 600_000
_WARMUP: Final = 200


def bench_scheduler(*, slots: int, waiting: int, steps: int, json_path: Path | None) -> None:
    check_writable(json_path)
    settle_heap()
    times_us = measure(slots=slots, waiting=waiting, steps=steps)
    mean_us = sum(times_us) / len(times_us)
    spread = quantiles(times_us, digits=1)
    print(
        markdown(
            ("slots", "waiting", "mean µs", "p50 µs", "p99 µs"), [(slots, waiting, mean_us, spread.p50, spread.p99)]
        )
    )
    print(f"a step: {verdict(mean_us, TARGET_US)}")
    result = {"slots": slots, "waiting": waiting, "mean_us": round(mean_us, 1), "step_us": spread}
    write_json(json_path, {**result, "environment": environment(engine="none", broker="unknown")})


def measure(*, slots: int, waiting: int, steps: int) -> list[float]:
    """Microseconds of `sweep`, `next_step` and `complete` together, of each step after the first ones."""
    costs = CostModel.prior()
    limits = SchedulerLimits(
        num_slots=slots,
        prefill_chunk_tokens=256,
        max_prefill_rows=8,
        stop_token_ids=frozenset({_STOP}),
        decode_stall_ms=80.0,
    )
    scheduler = build_scheduler("goodput", limits=limits, costs=costs, lengths=OutputLengths())
    now, added, times_us = 0.0, 0, list[float]()
    for step_number in range(_WARMUP + steps):
        while scheduler.num_waiting < waiting:
            scheduler.add(_sequence(added, now), now)
            added += 1
        took_us, now = _step(scheduler, costs, now)
        if step_number >= _WARMUP:
            times_us.append(took_us)
    return times_us


def _step(scheduler: Scheduler, costs: CostModel, now: float) -> tuple[float, float]:
    start_ns = time.perf_counter_ns()
    scheduler.sweep(now)
    step = scheduler.next_step(now)
    planned_ns = time.perf_counter_ns()
    assert step is not None, "there is always something to compute"
    ms = costs.decode_ms(len(step.decode), sum([row.past for row in step.decode])) if step.decode else 0.0
    ms += costs.prefill_ms(sum([len(chunk.token_ids) for chunk in step.prefill])) if step.prefill else 0.0
    prefilled = [_TOKEN if chunk.sampling is not None else None for chunk in step.prefill]
    decoded = [_TOKEN] * len(step.decode)
    computed_ns = time.perf_counter_ns()
    scheduler.complete(step, prefilled, decoded, now + ms)
    return (planned_ns - start_ns + time.perf_counter_ns() - computed_ns) / 1_000, now + ms


def _sequence(number: int, now: float) -> Sequence:
    return Sequence(
        request_id=str(number),
        prompt_ids=range(_PROMPT_TOKENS),
        max_output_tokens=_OUTPUT_TOKENS + number % 16,
        sampling=Sampling(),
        deadline=Deadline.after(now, first_token_ms=_HORIZON_MS, whole_ms=_HORIZON_MS),
        arrived_unix_ms=now,
        bucket="short",
        tenant=f"tenant-{number % 4}",
    )
