"""What an engine's operators took, by phase, layer and kind. Pure."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import Struct

Phase = Literal["prefill", "decode"]

PHASES: Final[tuple[Phase, ...]] = ("prefill", "decode")
_LAYER: Final = re.compile(r"layers\.(\d+)\.(\w+)")
_PARTS: Final = {"self_attn": "attention", "mlp": "mlp", "input_layernorm": "norm", "post_attention_layernorm": "norm"}


@dataclass(frozen=True, slots=True)
class Call:
    """One operator, once. `layer` is None for what stands before the first and behind the last."""

    phase: Phase
    layer: int | None
    part: str
    operator: str
    ms: float


class Row(Struct, frozen=True, kw_only=True):
    """Calls that have `name` in common; `ms` and `calls` are of one engine call, `share` of its phase's operators."""

    name: str
    ms: float
    share: float
    calls: float


class PhaseProfile(Struct, frozen=True, kw_only=True):
    """One phase. `call_ms` is the wall time of an engine call, with what is outside the operators: sampling, launches,
    and what the profiler itself takes; the median."""

    phase: Phase
    engine_calls: int
    call_ms: float
    operators_ms: float
    by_operator: tuple[Row, ...]
    by_layer: tuple[Row, ...]
    by_part: tuple[Row, ...]


def place_of(node: str) -> tuple[int | None, str]:
    """(layer, part) of a node of the graph writer's, by its name; an optimizer's fusions keep its beginning."""
    found = _LAYER.search(node)
    if found is None:
        return None, "embedding" if "embed_tokens" in node or node.startswith("hidden") else "head"
    return int(found.group(1)), _PARTS.get(found.group(2), found.group(2))


def summarise(phase: Phase, calls: Sequence[Call], call_ms: Sequence[float]) -> PhaseProfile:
    """`calls` of this phase, made by as many engine calls as `call_ms` has. Raises `ValueError` where it has none."""
    if not call_ms:
        raise ValueError(f"no {phase} was measured")
    mine = [call for call in calls if call.phase == phase]
    number = len(call_ms)
    return PhaseProfile(
        phase=phase,
        engine_calls=number,
        call_ms=sorted(call_ms)[number // 2],
        operators_ms=sum(call.ms for call in mine) / number,
        by_operator=_rows(mine, number, lambda call: call.operator),
        by_layer=_rows(mine, number, layer_name, by_time=False),
        by_part=_rows(mine, number, lambda call: call.part),
    )


def layer_name(call: Call) -> str:
    return call.part if call.layer is None else f"layer {call.layer}"


def _rows(calls: Sequence[Call], number: int, name: Callable[[Call], str], *, by_time: bool = True) -> tuple[Row, ...]:
    """The longest first, or else in the order in which they were first called."""
    ms: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for call in calls:
        ms[name(call)] += call.ms
        counts[name(call)] += 1
    total = sum(ms.values()) or 1.0
    rows = [Row(name=each, ms=ms[each] / number, share=ms[each] / total, calls=counts[each] / number) for each in ms]
    return tuple(sorted(rows, key=lambda row: -row.ms) if by_time else rows)
