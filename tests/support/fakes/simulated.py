"""Small traces and machines for the simulator's tests."""

import msgspec

from ops.traces.costs import CPU, EngineCosts
from ops.traces.least_work import LeastWork
from ops.traces.trace import Request, Trace

# A prompt token and a decode row take 10 ms each, and nothing else takes any time.
PLAIN = msgspec.structs.replace(
    CPU,
    name="plain",
    step_overhead_ms=0.0,
    table=msgspec.structs.replace(
        CPU.table,
        decode_ms=0.0,
        decode_ms_per_row=10.0,
        decode_ms_per_context_token=0.0,
        prefill_ms=0.0,
        prefill_ms_per_token=10.0,
        prefill_ms_per_past_token=0.0,
        prefill_ms_per_token_pair=0.0,
    ),
)

# Its calls take time by themselves, which one that computes both takes once.
MIXING = msgspec.structs.replace(
    PLAIN,
    name="mixing",
    table=msgspec.structs.replace(
        PLAIN.table,
        key=msgspec.structs.replace(PLAIN.table.key, mixes=True),
        decode_ms=15.0,
        decode_ms_per_row=2.0,
        prefill_ms=4.0,
        mixed_ms=1.0,
    ),
)


def least_work(costs: EngineCosts = CPU, num_slots: int = 4, chunk: int = 128) -> LeastWork:
    return LeastWork(costs=costs, num_slots=num_slots, prefill_chunk_tokens=chunk)


def request(
    arrival_ms: float = 0.0, *, prompt: int = 10, output: int = 5, soft: int = 3_000, hard: int = 3_000, **other: object
) -> Request:
    given = {"bucket": "short", "max_output_tokens": 160, **other}
    return Request(
        arrival_ms=arrival_ms,
        prompt_tokens=prompt,
        output_tokens=output,
        first_token_ms=soft,
        deadline_ms=hard,
        **given,  # type: ignore[arg-type]
    )


def trace_of(*requests: Request, name: str = "small") -> Trace:
    ordered = tuple(sorted(requests, key=lambda one: one.arrival_ms))
    return Trace(name=name, load=None, seed=0, requests=ordered)
