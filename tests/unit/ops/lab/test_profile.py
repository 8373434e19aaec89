"""A profile is the runtime's own trace of as many calls as were asked for."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from ops.lab.profile import ProfiledStep, ProfileOptions, profile, shares
from ops.model.prepare import prepare_model
from shared.errors import ModelError, SettingsError
from shared.settings import Settings
from tests.support.models.native_library import native_dir
from workers.engine.native.library import PHASES


def options(trace: Path, *, batch: int = 2) -> ProfileOptions:
    return ProfileOptions(batch=batch, prompt_tokens=5, prefills=3, steps=4, trace=trace)


def settings_of(folder: Path, **worker: object) -> Settings:
    return Settings.model_validate({"model": {"dir": folder}, "worker": {"engine": "onnx", "slots": 2, **worker}})


def test_onnx_runtimes_trace_has_every_call(tmp_path: Path, tiny_source: Path) -> None:
    """Two more of each kind than are asked for: they warm up."""
    folder = prepare_model(tmp_path / "models", "fp32", source=tiny_source)
    asked = options(tmp_path / "trace.json")
    told = profile(settings_of(folder.path, max_length=asked.max_length), asked)
    assert told.startswith(f"onnx, {folder.manifest.name} fp32: batch 2, 5 prefills of 5 tokens, 6 steps")
    names = Counter(event["name"] for event in msgspec.json.decode(asked.trace.read_bytes()))
    assert names["model_run"] == 5 + 6
    assert names["layers.0.mlp.down_proj.out_kernel_time"] == 5 + 6


def test_the_native_engine_tells_what_its_steps_spend_their_time_on(tmp_path: Path, tiny_source: Path) -> None:
    """Every step has all phases, each took its time, and the next step begins where they end."""
    folder = prepare_model(tmp_path / "models", "int8", source=tiny_source)
    asked = options(tmp_path / "trace.json")
    worker = {"engine": "native", "native_dir": native_dir(), "max_length": asked.max_length}
    told = profile(settings_of(folder.path, **worker), asked).splitlines()
    assert told[1].startswith("5 steps of 10 rows, contexts of 5 to 5 tokens: median ")
    assert told[2].startswith("6 steps of 2 rows, contexts of 6 to 11 tokens: median ")
    events = msgspec.json.decode(asked.trace.read_bytes())["traceEvents"]
    steps = [event for event in events if "args" in event]
    assert [step["args"]["rows"] for step in steps] == [10] * 5 + [2] * 6
    for phase in PHASES:
        took = [event["dur"] for event in events if event["name"] == phase]
        assert len(took) == 5 + 6
        assert min(took) > 0
    for step, following in pairwise(steps):
        assert following["ts"] == pytest.approx(step["ts"] + step["dur"])


def test_what_steps_take_is_told_by_their_rows_and_in_shares() -> None:
    phases = {"embed": 1, "norm": 1, "qkv": 2, "attention": 4, "out": 2, "gate_up": 5, "down": 3, "head": 2}
    steps = [
        ProfiledStep(8, 9, {name: times * part * 1_000_000 for name, part in phases.items()}) for times in (1, 1, 3)
    ]
    assert shares([*steps, ProfiledStep(16, 40, phases)]) == (
        "\n3 steps of 8 rows, contexts of 9 to 9 tokens: median 20.00 ms; products 70%, attention 20%, rest 10%"
        "\n1 step of 16 rows, contexts of 40 to 40 tokens: median 0.00 ms; products 70%, attention 20%, rest 10%"
    )


@pytest.mark.parametrize(
    ("engine", "error", "said"),
    [
        ("fake", SettingsError, "REPLYLINE_WORKER__ENGINE=fake"),
        ("onnx", ModelError, "replyline model prepare"),
    ],
)
def test_what_cannot_be_profiled_is_said(tmp_path: Path, engine: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        profile(settings_of(tmp_path / "missing", engine=engine), options(tmp_path / "trace.json"))
