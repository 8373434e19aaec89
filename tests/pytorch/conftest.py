"""Tests of the torch engine. Torch is not in the tests' environment: `make test-torch` runs them in a separate one.

The last lines of the run name the tests that were not collected.
"""

import importlib.util

import pytest

from tests.support.models.fixtures import fp32_model_folder, models_dir, tiny_source
from tests.support.not_run import name_not_run

__all__ = ["fp32_model_folder", "models_dir", "tiny_source"]

_HAS_TORCH = importlib.util.find_spec("torch") is not None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


collect_ignore_glob = []
if not _HAS_TORCH:
    collect_ignore_glob = ["test_*.py"]
elif not _has_gpu():
    collect_ignore_glob = ["test_torch_cuda.py"]


def pytest_configure(config: pytest.Config) -> None:
    if not _HAS_TORCH:
        name_not_run(config, "engine torch, which is not installed here; run: make test-torch")
    elif collect_ignore_glob:
        name_not_run(config, "torch finds no GPU: no allocation over 1,000 decode steps (test_torch_cuda.py)")
