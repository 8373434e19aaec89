"""A profile is the runtime's own trace of as many calls as were asked for."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ops.model.prepare import prepare_model
from ops.model.profile import ProfileOptions, profile
from shared.errors import ModelError, SettingsError
from shared.settings import Settings


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


@pytest.mark.parametrize(
    ("engine", "trace", "error", "said"),
    [
        ("fake", "trace.json", SettingsError, "REPLYLINE_WORKER__ENGINE=fake"),
        ("onnx", "none/trace.json", SettingsError, "--trace"),
        ("onnx", "trace.json", ModelError, "replyline model prepare"),
    ],
)
def test_what_cannot_be_profiled_is_said(
    tmp_path: Path, engine: str, trace: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        profile(settings_of(tmp_path / "missing", engine=engine), options(tmp_path / trace))
