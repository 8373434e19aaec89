"""`replyline bench engines` on a tiny random model: whole, with its JSON, its plot, and what could not run."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from ops.model.prepare import prepare_model
from tests.support.models.fixtures import TINY, write_llama


def test_every_engine_is_measured_or_named(tmp_path: Path) -> None:
    """A row for each batch, with numbers in their ranges; an engine that cannot run is said to, with its reason."""
    write_llama(tmp_path / "tiny", TINY, seed=7)
    folder = prepare_model(tmp_path, "int8", source=tmp_path / "tiny")
    written, drawn = tmp_path / "engines.json", tmp_path / "engines.svg"
    given = ["--engines", "onnx,llama.cpp", "--batches", "2,1", "--prompt-tokens", "8", "--new-tokens", "6"]
    given += ["--rounds", "1", "--json", str(written), "--plot", str(drawn)]
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli", "bench", "engines", *given],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "REPLYLINE_MODEL__DIR": str(folder.path)},
    )
    assert done.returncode == 0, done.stderr
    assert "NOT RUN: llama.cpp: --llama-bench and --gguf are not given" in done.stdout
    result = json.loads(written.read_text())
    rows = result["rows"]
    assert [(row["engine"], row["precision"], row["device"], row["batch"]) for row in rows] == [
        ("onnx", "int8", "cpu", 1),
        ("onnx", "int8", "cpu", 2),
    ]
    for row in rows:
        assert 0 < row["overhead_share"] < 1
        assert row["roofline_share"] > 0
        assert min(row["prefill_tok_s"], row["decode_tok_s"], row["rss_mib"]) > 0
    assert result["head"]["limits"][0]["cpu"]["gflop_s"].keys() >= {"fp32", "int8"}
    assert [missing["engine"] for missing in result["not_run"]] == ["llama.cpp"]
    ET.fromstring(drawn.read_text())
