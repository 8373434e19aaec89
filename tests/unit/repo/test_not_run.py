"""What a machine cannot run is no test that passed: it is not collected, and the run's last lines name it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUITE = ROOT / "tests" / "pytorch"
TORCH_WITHOUT_A_GPU = """
class cuda:
    @staticmethod
    def is_available():
        return False
"""


def test_what_wants_a_gpu_is_not_collected_without_one(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH_WITHOUT_A_GPU)
    others = [f"--ignore={path}" for path in SUITE.glob("test_*.py") if path.name != "test_torch_cuda.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *others, SUITE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ran.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, ran.stdout + ran.stderr
    assert "NOT RUN on this machine: torch finds no GPU: no allocation over 1,000 decode steps" in ran.stdout
