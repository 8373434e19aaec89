"""Plan an engine's device memory before allocating any. Pure.

Weights, the KV of all slots at full length and the workspace of the largest step are allocated once at the start, so
that a long request never lacks memory. A reserve of a fifth of KV and workspace should remain free for what is not
planned: the workspace is an estimate, and the driver, libraries and other processes need some too. Whether it is free
is checked after the engine has loaded.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.model.folder import GRAPH_DATA, NATIVE, Architecture, Manifest
from shared.nouns import counted
from shared.settings.worker import MAX_SLOTS, WorkerSettings

RESERVE_SHARE: Final = 0.2
_MIB: Final = 1 << 20
_BFLOAT16: Final = 2
_FLOAT32: Final = 4
_COUNTS: Final = (1, 2, 4, *range(8, MAX_SLOTS + 1, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A plan, in bytes. `slot_bytes` is the KV of one slot at full length, `active_share` the part of the weights
    that computes a token."""

    weights_bytes: int
    slot_bytes: int
    num_slots: int
    workspace_bytes: int
    available_bytes: int
    active_share: float = 1.0

    @property
    def kv_bytes(self) -> int:
        return self.slot_bytes * self.num_slots

    @property
    def reserve_bytes(self) -> int:
        return int((self.kv_bytes + self.workspace_bytes) * RESERVE_SHARE)

    @property
    def needed_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes + self.reserve_bytes

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.available_bytes

    @property
    def slots_that_fit(self) -> int:
        """Return the number of slots that fit with everything else unchanged; 0 if not even one does."""
        fixed = self.weights_bytes + self.workspace_bytes * (1 + RESERVE_SHARE)
        return max(0, int((self.available_bytes - fixed) / (self.slot_bytes * (1 + RESERVE_SHARE))))

    def describe(self) -> str:
        """Return `needs 1,234 of 2,000 MiB: weights …, KV …, workspace …, reserve …`."""
        parts = {
            "weights": self.weights_bytes,
            f"KV of {counted(self.num_slots, 'slot')}": self.kv_bytes,
            "workspace": self.workspace_bytes,
            "reserve": self.reserve_bytes,
        }
        listed = ", ".join(f"{name} {_mib(size)}" for name, size in parts.items())
        active = f" (a token reads {_mib(int(self.weights_bytes * self.active_share))} of the weights)"
        return (
            f"needs {_mib(self.needed_bytes)} of {_mib(self.available_bytes)} MiB: {listed}"
            f"{active if self.active_share < 1 else ''}"
        )

    @property
    def remedy(self) -> str:
        """Return which setting to lower so that the plan fits; empty if it does."""
        return "" if self.fits else _fewer(self.slots_that_fit)

    def short_reserve(self, free_bytes: int) -> "ShortReserve | None":
        """Return the shortage if less than the reserve is free after loading; else None."""
        lacking = self.reserve_bytes - free_bytes
        if lacking <= 0:
            return None
        # One slot less frees its own bytes, and lowers the reserve by a fifth of them.
        too_many = math.ceil(lacking / (self.slot_bytes * (1 + RESERVE_SHARE)))
        return ShortReserve(free_bytes, self.reserve_bytes, _fewer(max(0, self.num_slots - too_many)))


@dataclass(frozen=True, slots=True)
class ShortReserve:
    """Loading has left less free memory than the plan's reserve."""

    free_bytes: int
    reserve_bytes: int
    remedy: str

    def describe(self) -> str:
        """Return `12 MiB are free after loading, 146 are to stay so`."""
        return f"{_mib_within(self.free_bytes)} MiB are free after loading, {_mib(self.reserve_bytes)} are to stay so"


def plan_memory(
    manifest: Manifest,
    *,
    num_slots: int,
    slot_tokens: int,
    step_tokens: int,
    kv_itemsize: int,
    available_bytes: int,
    weights: str = GRAPH_DATA,
) -> MemoryPlan:
    """Plan the memory for a prepared model.

    Args:
        manifest: the model.
        num_slots: number of slots.
        slot_tokens: tokens in a slot.
        step_tokens: tokens computed in one step.
        kv_itemsize: bytes of a KV number.
        available_bytes: the memory that may be used.
        weights: the file with the weights.
    """
    a = manifest.architecture
    return MemoryPlan(
        weights_bytes=sum(entry.size for entry in manifest.files if entry.name == weights),
        slot_bytes=2 * a.num_layers * a.num_kv_heads * a.head_dim * slot_tokens * kv_itemsize,
        num_slots=num_slots,
        workspace_bytes=_workspace_bytes(a, step_tokens, num_slots, kv_itemsize),
        available_bytes=available_bytes,
        active_share=a.active_weights / a.num_weights,
    )


def most_slots(plan_for: Callable[[int], MemoryPlan]) -> MemoryPlan:
    """Return the plan with the most slots that fits, or the plan with one slot if none does.

    Above eight the number is a multiple of eight, so that a few bytes more or less at the next start do not change it,
    which would make TensorRT build again.
    """
    fitting = bisect_right(_COUNTS, False, key=lambda num_slots: not plan_for(num_slots).fits)
    return plan_for(_COUNTS[max(0, fitting - 1)])


def fit_slots(worker: WorkerSettings, plan_for: Callable[[int], MemoryPlan]) -> MemoryPlan:
    """Return the plan for the configured number of slots, or for as many as fit if that is 0."""
    return plan_for(worker.slots) if worker.slots else most_slots(plan_for)


def cpu_memory_plan(worker: WorkerSettings, manifest: Manifest, available_bytes: int) -> MemoryPlan:
    """Plan a CPU engine's memory: the native engine's if it is configured and the folder has its weights."""
    native = worker.engine == "native" and any(entry.name == NATIVE for entry in manifest.files)
    return plan_memory(
        manifest,
        num_slots=worker.slots_without_gpu,
        slot_tokens=worker.max_length,
        step_tokens=worker.prefill_chunk_tokens,
        kv_itemsize=_BFLOAT16 if native else _FLOAT32,
        weights=NATIVE if native else GRAPH_DATA,
        available_bytes=available_bytes,
    )


def _workspace_bytes(a: Architecture, step_tokens: int, step_rows: int, itemsize: int) -> int:
    """Estimate the memory of the largest step.

    For each token: the residual stream in float32, twice, and the widest point of a layer; for each row its logits in
    float32.
    """
    heads = (a.num_heads + 2 * a.num_kv_heads) * a.head_dim
    widest = max(3 * a.intermediate_size, 2 * heads + a.hidden_size)
    if a.experts is not None:
        widest += a.experts.chosen * (3 * a.experts.width + 2 * a.hidden_size)
    return step_tokens * (2 * a.hidden_size * _FLOAT32 + widest * itemsize) + step_rows * a.vocab_size * _FLOAT32


def _fewer(num_slots: int) -> str:
    if num_slots:
        return f"lower REPLYLINE_WORKER__SLOTS to {num_slots}, or shorten the slots"
    return "take shorter slots, a smaller model or another precision: not even one slot fits"


def _mib(num_bytes: int) -> str:
    return f"{-(-num_bytes // _MIB):,}"


def _mib_within(num_bytes: int) -> str:
    return f"{num_bytes // _MIB:,}"
