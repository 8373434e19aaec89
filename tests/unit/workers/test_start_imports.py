"""A worker's start imports only what its own engine and links need: imports are most of a cold start."""

import subprocess
import sys

import pytest

LATER = {
    "httpx2": "an upstream's server, an edge's centre",
    "workers.edge.sync": "an edge's centre",
    "workers.serving.upstream_loop": "an upstream's server",
    "torch": "engine torch",
    "onnxruntime": "engine onnx",
}


@pytest.fixture(scope="module")
def imported() -> set[str]:
    names = "import sys, workers.__main__, workers.process; print(*sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("module", LATER)
def test_a_worker_starts_without_modules_that_only_others_use(module: str, imported: set[str]) -> None:
    assert module not in imported, f"only for {LATER[module]}"
