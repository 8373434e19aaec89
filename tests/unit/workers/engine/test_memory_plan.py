"""What an engine takes is known, and refused, before it takes it."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.folder import (
    CHATML,
    GRAPH_DATA,
    TOKENIZER,
    Architecture,
    FileEntry,
    Manifest,
    ModelFolder,
    Source,
)
from shared.process.hardware import available_memory
from shared.settings.worker import MAX_SLOTS, WorkerSettings
from tests.support.models.fixtures import TINY
from workers.engine.memory_plan import MemoryPlan, cpu_memory_plan, plan_memory
from workers.engine.tensorrt.probe import DeviceFacts
from workers.engine.torch.load_torch import torch_memory_plan

MANIFEST = Manifest(
    name="tiny",
    revision="1",
    precision="fp16",
    source=Source(name="tiny", sha256=""),
    architecture=TINY,
    stop_token_ids=(2,),
    chat_template=CHATML,
    files=(FileEntry(name=GRAPH_DATA, size=123_456, sha256=""), FileEntry(name=TOKENIZER, size=99_999, sha256="")),
)
sizes = st.integers(1, 10**12)
plans = st.builds(
    MemoryPlan,
    weights_bytes=sizes,
    slot_bytes=sizes,
    num_slots=st.integers(1, 512),
    workspace_bytes=sizes,
    available_bytes=st.integers(0, 10**13),
)


@given(plans)
def test_a_fifth_of_what_grows_stays_free_and_the_remedy_is_the_most_slots_that_fit(plan: MemoryPlan) -> None:
    grows = plan.kv_bytes + plan.workspace_bytes
    assert plan.needed_bytes == plan.weights_bytes + grows + plan.reserve_bytes
    assert abs(plan.reserve_bytes - grows / 5) <= max(1, grows * 1e-12)
    fewer = plan.slots_that_fit
    assert plan.fits == (fewer >= plan.num_slots) or fewer == plan.num_slots - 1  # by a byte of rounding
    if fewer:
        assert replace(plan, num_slots=fewer).needed_bytes <= plan.available_bytes + 1
    assert not replace(plan, num_slots=fewer + 2).fits
    assert bool(plan.remedy) != plan.fits
    if 0 < fewer < plan.num_slots and not plan.fits:
        assert f"REPLYLINE_WORKER__SLOTS to {fewer}" in plan.remedy


@given(plans, st.integers(0, 10**13))
def test_a_reserve_that_loading_did_not_leave_is_told_with_the_slots_that_would(
    plan: MemoryPlan, free_bytes: int
) -> None:
    short = plan.short_reserve(free_bytes)
    assert (short is None) == (free_bytes >= plan.reserve_bytes)
    if short is not None and (to := re.search(r"SLOTS to (\d+),", short.remedy)):
        fewer = int(to[1])
        for slots, enough in ((fewer, True), (fewer + 1, False)):
            left = free_bytes + (plan.num_slots - slots) * plan.slot_bytes
            kept = replace(plan, num_slots=slots).short_reserve(left)
            rounding = replace(plan, num_slots=slots).reserve_bytes - left
            assert (kept is None) == enough or abs(rounding) <= 2, "by a byte of rounding"


def test_a_short_reserve_is_one_line_in_mib() -> None:
    plan = MemoryPlan(
        weights_bytes=0, slot_bytes=100 << 20, num_slots=8, workspace_bytes=0, available_bytes=1_000 << 20
    )
    short = plan.short_reserve((12 << 20) + 5)
    assert short is not None
    assert short.describe() == "12 MiB are free after loading, 160 are to stay so"
    assert short.remedy == "lower REPLYLINE_WORKER__SLOTS to 6, or shorten the slots"
    assert plan.short_reserve(160 << 20) is None


def test_a_models_plan_counts_its_weights_and_every_slot_whole() -> None:
    plan = plan_memory(
        MANIFEST, num_slots=4, slot_tokens=104, step_tokens=64, kv_itemsize=2, available_bytes=10_000_000
    )
    assert plan.weights_bytes == 123_456
    # Keys and values of 2 layers, 2 heads of 16 numbers of 2 bytes, for 104 tokens.
    assert plan.slot_bytes == 2 * 2 * 2 * 16 * 2 * 104
    assert plan.fits
    assert plan.describe().startswith("needs 1 of 10 MiB: weights 1, KV of 4 slots 1")


# Two models in half precision: a small one with slots of 2,048 tokens, and one of eight billion weights with 4,096.
_SMALL = msgspec.structs.replace(
    TINY, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64, hidden_size=576, intermediate_size=1_536,
    vocab_size=49_152,
)  # fmt: skip
_LARGE = msgspec.structs.replace(
    TINY, num_layers=32, num_heads=32, num_kv_heads=8, head_dim=128, hidden_size=4_096, intermediate_size=14_336,
    vocab_size=128_256,
)  # fmt: skip
_GIB = 1 << 30


def _on(architecture: Architecture, weights: int, worker: WorkerSettings, gib: float) -> MemoryPlan:
    files = (FileEntry(name=GRAPH_DATA, size=weights, sha256=""),)
    manifest = msgspec.structs.replace(
        MANIFEST, precision="bf16", dialect="tensorrt", architecture=architecture, files=files
    )
    return torch_memory_plan(worker, ModelFolder(Path(), manifest), int(gib * _GIB))


@pytest.mark.parametrize(
    ("device", "gib", "small", "large"),
    [
        # A slice has this many eighths of the memory that a divided GPU leaves: 76 GiB of an H100, 128 of an H200.
        ("L4", 22, 408, 8),
        ("H100 1g.10gb", 9.5, 168, 0),
        ("H100 1g.20gb, 2g.20gb", 19, 352, 4),
        ("H100 3g.40gb, 4g.40gb", 38, 512, 32),
        ("H100 7g.80gb", 79, 512, 104),
        ("H200 1g.18gb", 16, 288, 1),
        ("H200 1g.35gb, 2g.35gb", 32, 512, 24),
        ("H200 3g.71gb, 4g.71gb", 64, 512, 80),
        ("H200 7g.141gb", 139, 512, 200),
    ],
)
def test_as_many_slots_as_a_slice_has_room_for(device: str, gib: float, small: int, large: int) -> None:
    """On paper. `large` 0: not even one fits, and the plan says so."""
    for expected, architecture, weights, length in (
        (small, _SMALL, 269_060_352, 2_048),
        (large, _LARGE, 16_060_522_496, 4_096),
    ):
        plan = _on(architecture, weights, WorkerSettings(slots=0, max_length=length), gib)
        assert (plan.num_slots if plan.fits else 0) == expected, device
        more = plan.num_slots + (min(8, plan.num_slots))
        if more <= MAX_SLOTS:
            assert not _on(architecture, weights, WorkerSettings(slots=more, max_length=length), gib).fits
        if not plan.fits:
            assert plan.remedy.endswith("not even one slot fits")


def test_a_number_of_slots_that_is_set_is_kept_and_a_cpu_has_eight_where_none_is() -> None:
    assert _on(_SMALL, 0, WorkerSettings(slots=3), 79).num_slots == 3
    assert cpu_memory_plan(WorkerSettings(slots=0), MANIFEST, 1).num_slots == 8


def test_workers_that_share_a_gpu_plan_with_their_shares_of_it() -> None:
    gpu = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=60, total_bytes=80, version="1")
    assert [gpu.share_bytes(share) for share in (1.0, 0.75, 0.5)] == [60, 60, 40]


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [("max", "5", 2_048_000), ("1000000", "400000", 600_000), ("1000000", "1400000", 0), ("9000000", "0", 2_048_000)],
)
def test_a_containers_limit_counts_where_it_is_less(tmp_path: Path, limit: str, used: str, expected: int) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:    9000 kB\nMemFree:   100 kB\nMemAvailable:    2000 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    assert available_memory(meminfo, tmp_path) == expected


def test_a_system_without_containers_or_proc(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable:    2000 kB\n")
    assert available_memory(tmp_path / "meminfo", tmp_path / "none") == 2_048_000
    assert available_memory(tmp_path / "none", tmp_path) is None
