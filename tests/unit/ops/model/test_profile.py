"""What an engine's operators took is summed by operator, part and layer; nothing is counted twice or lost."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.model.profile.calls import Call, Phase, place_of, summarise
from ops.model.profile.picture import flame_graph
from ops.model.profile.program import ProfileOptions, run
from ops.model.profile.recorders import calls_of, open_recorder, torch_calls
from shared.errors import ModelError, SettingsError
from shared.settings import Settings
from workers.engine import Engine
from workers.engine.fake import FakeEngine

CALLS = [
    Call("prefill", None, "embedding", "Gather", 1.0),
    Call("prefill", 0, "attention", "MatMulNBits", 4.0),
    Call("prefill", 0, "mlp", "MatMulNBits", 6.0),
    Call("prefill", 1, "mlp", "Mul", 5.0),
    Call("decode", 0, "mlp", "Mul", 9.0),
]


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ("layers.3.self_attn.qkv_proj.out_kernel_time", (3, "attention")),
        ("layers.12.mlp.down_proj.out_kernel_time", (12, "mlp")),
        ("layers.0.post_attention_layernorm.residual", (0, "norm")),
        ("hidden_kernel_time", (None, "embedding")),
        ("logits_kernel_time", (None, "head")),
    ],
)
def test_a_nodes_name_says_where_it_stands(node: str, place: tuple[int | None, str]) -> None:
    assert place_of(node) == place


def test_a_phase_is_summed_for_one_engine_call() -> None:
    """Two prefills: each row is half of all; operators by time, layers in their order."""
    profile = summarise("prefill", CALLS, [9.0, 11.0])
    assert (profile.engine_calls, profile.call_ms, profile.operators_ms) == (2, 11.0, 8.0)
    assert [(row.name, row.ms, row.calls) for row in profile.by_operator] == [
        ("MatMulNBits", 5.0, 1.0),
        ("Mul", 2.5, 0.5),
        ("Gather", 0.5, 0.5),
    ]
    assert [row.name for row in profile.by_layer] == ["embedding", "layer 0", "layer 1"]
    assert [(row.name, row.share) for row in profile.by_part] == [
        ("mlp", 11 / 16),
        ("attention", 0.25),
        ("embedding", 1 / 16),
    ]


@given(
    st.lists(
        st.builds(
            Call,
            st.just("decode"),
            st.none() | st.integers(0, 40),
            st.sampled_from(["mlp", "attention", "<norm> & more"]),
            st.sampled_from(["Mul", "MatMul", "aten::mm"]),
            st.floats(0.001, 50),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_shares_sum_to_one_and_the_boxes_lie_within_the_picture(calls: list[Call]) -> None:
    profile = summarise("decode", calls, [1.0])
    for rows in (profile.by_operator, profile.by_layer, profile.by_part):
        assert sum(row.share for row in rows) == pytest.approx(1.0)
        assert sum(row.ms for row in rows) == pytest.approx(profile.operators_ms)
    picture = ET.fromstring(flame_graph([profile], calls, "caption <&>"))
    boxes = [box for box in picture.iter("{http://www.w3.org/2000/svg}rect") if box.get("class") == "part"]
    rows_: dict[str, float] = {}
    for box in boxes:
        left, width = float(box.get("x", 0)), float(box.get("width", 0))
        assert left >= 12
        assert left + width <= 1_188.1
        rows_[box.get("y", "")] = rows_.get(box.get("y", ""), 0.0) + width
    assert max(rows_.values(), default=0.0) <= 1_176.5
    assert len(re.findall("<title>", flame_graph([profile], calls, ""))) == len(boxes)


def _event(name: str, ts: int, dur: int, operator: str = "", category: str = "Node") -> dict[str, object]:
    return {"cat": category, "name": name, "ts": ts, "dur": dur, "args": {"op_name": operator}}


EVENTS = [
    _event("session_initialization", 0, 5, category="Session"),
    _event("layers.0.mlp.down_proj.out_kernel_time", 110, 2_000, "MatMulNBits"),
    _event("model_run", 100, 50, category="Session"),
    _event("layers.0.mlp.down_proj.out_fence_before", 205, 1, "MatMulNBits"),
    _event("layers.0.mlp.down_proj.out_kernel_time", 210, 3_000, "MatMulNBits"),
    _event("model_run", 200, 50, category="Session"),
]


def test_onnx_runtimes_events_go_to_the_run_that_they_began_in() -> None:
    """The first run is not counted; only kernels are."""
    assert calls_of(EVENTS, [None, "decode"]) == [Call("decode", 0, "mlp", "MatMulNBits", 3.0)]


def test_a_profile_that_is_not_whole_is_refused() -> None:
    with pytest.raises(ModelError, match="2 of 3 runs"):
        calls_of(EVENTS, [None, "decode", "decode"])


def _torch_event(name: str, device: str, us: float) -> SimpleNamespace:
    own = {"self_cpu_time_total": us} if device == "CPU" else {"self_cpu_time_total": 0.0, "self_device_time_total": us}
    return SimpleNamespace(name=name, device_type=SimpleNamespace(name=device), **own)


def test_of_torchs_events_kernels_count_where_a_gpu_ran_them() -> None:
    """Else operators, each without those that it called; what took nothing is left out."""
    on_cpu = [_torch_event("aten::linear", "CPU", 0.0), _torch_event("aten::mm", "CPU", 2_000.0)]
    assert torch_calls(on_cpu, "decode") == [Call("decode", None, "model", "aten::mm", 2.0)]
    both = [*on_cpu, _torch_event("gemm_kernel", "CUDA", 500.0)]
    assert torch_calls(both, "prefill") == [Call("prefill", None, "model", "gemm_kernel", 0.5)]


class Counting:
    """Records which calls of a scripted engine were counted."""

    def __init__(self) -> None:
        self.engine: Engine = FakeEngine(num_slots=4, max_length=64)
        self.phases: list[Phase | None] = []

    def measure(self, phase: Phase | None, call: Callable[[], object]) -> float:
        call()
        self.phases.append(phase)
        return 1.0

    def finish(self) -> list[Call]:
        return []


def test_prefills_and_steps_are_made_as_asked_the_first_of_each_uncounted() -> None:
    recorder = Counting()
    options = ProfileOptions(batch=2, prompt_tokens=5, prefills=3, steps=4)
    assert run(recorder, options) == {"prefill": [1.0] * 3, "decode": [1.0] * 4}
    assert recorder.phases == [None, None, *["prefill"] * 3, None, None, *["decode"] * 4]


def test_an_engine_without_a_profiler_is_said(tmp_path: object) -> None:
    settings = Settings(worker={"engine": "fake"})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="REPLYLINE_WORKER__ENGINE=fake"):
        open_recorder(settings, tmp_path)  # type: ignore[arg-type]
