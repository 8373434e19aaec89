"""The models and caches that the suites here run on, and how Hypothesis runs."""

import os

from hypothesis import settings

from tests.support.fakes.kv_workers import workers
from tests.support.models.fixtures import (
    folder,
    fp32_model_folder,
    model_folder,
    models_dir,
    prepared,
    slots_folder,
    tiny_source,
)
from tests.unit.examples import examples

__all__ = [
    "folder",
    "fp32_model_folder",
    "model_folder",
    "models_dir",
    "prepared",
    "slots_folder",
    "tiny_source",
    "workers",
]

# An example has no time limit of its own: on a busy machine any may be slow once. Each test has one. With CI set the
# examples are always the same: a change is judged by what it changes, and new examples are found by people's runs.
settings.register_profile("steady", max_examples=examples(100), deadline=None, derandomize="CI" in os.environ)
settings.load_profile("steady")
