"""The models and engines of these suites."""

from tests.conformance.engine_cases import case
from tests.support.models.fixtures import fp32_model_folder, model_folder, models_dir, tiny_source

__all__ = ["case", "fp32_model_folder", "model_folder", "models_dir", "tiny_source"]
