"""Tests of the engine of torch, which is no part of the tests' environment: `make test-torch` runs them in its own.

Elsewhere nothing here is collected; tests/conformance/test_engines.py says so in its list of what was not run.
"""

import importlib.util
import os

from model_fixtures import fp32_model_folder, models_dir, tiny_source

__all__ = ["fp32_model_folder", "models_dir", "tiny_source"]

# Triton asks when a kernel is defined: without a GPU its kernels are interpreted.
os.environ.setdefault("TRITON_INTERPRET", "1")

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]
