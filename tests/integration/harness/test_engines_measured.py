"""`replyline bench engines` on a tiny random model: complete, with its JSON, and the engines that could not run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.model.prepare import prepare_model
from tests.support.models.fixtures import TINY, write_llama

pytestmark = pytest.mark.long


def test_every_engine_is_measured_or_named(tmp_path: Path) -> None:
    """Figures of each batch are in their ranges; an engine that cannot run is listed with its reason."""
    write_llama(tmp_path / "tiny", TINY, seed=7)
    folder = prepare_model(tmp_path, "int8", source=tmp_path / "tiny")
    written = tmp_path / "engines.json"
    given = ["--engines", "onnx,llama.cpp", "--batches", "2,1", "--contexts", "8,40", "--new-tokens", "6"]
    given += ["--prefill", "16", "--over", "0,32", "--rounds", "1", "--json", str(written)]
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", "bench", "engines", *given],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "REPLYLINE_MODEL__DIR": str(folder.path)},
    )
    assert done.returncode == 0, done.stderr
    assert "NOT RUN: llama.cpp: --gguf is not given: what llama.cpp has for tiny" in done.stdout
    result = json.loads(written.read_text())
    assert result["engines"]["onnx int8"]["device"] == "cpu"
    figures = result["medians"]["onnx int8"]
    names = [
        f"{name} {rows} x {context}" for name in ("decode_tok_s", "rss_mib") for rows in (1, 2) for context in (8, 40)
    ]
    assert min(figures[name] for name in [*names, "prefill_tok_s 16 over 0", "prefill_tok_s 16 over 32"]) > 0
    assert all(0 < figures[f"python {rows} x 40"] < 1 for rows in (1, 2))
    assert 0 < figures["load_s"] < 30
    assert [missing["engine"] for missing in result["not_run"]] == ["llama.cpp"]
