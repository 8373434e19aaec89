"""The models and caches that the suites here run on, and how Hypothesis runs."""

from hypothesis import settings
from kv_workers import workers
from model_fixtures import fp32_model_folder, model_folder, models_dir, tiny_source

__all__ = ["fp32_model_folder", "model_folder", "models_dir", "tiny_source", "workers"]

# An example has no time limit of its own: on a busy machine any may be slow once. Each test has one.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
