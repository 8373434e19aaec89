"""What an engine takes is known, and refused, before it takes it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.folder import CHATML, GRAPH_DATA, TOKENIZER, FileEntry, Manifest, Source
from shared.process.hardware import available_memory
from tests.support.models.fixtures import TINY
from workers.engine.memory_plan import MemoryPlan, plan_memory

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
