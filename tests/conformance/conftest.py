"""The models and the engines that the suites here run on."""

from tests.conformance.engine_cases import case
from tests.support.models.fixtures import fp32_model_folder, model_folder, models_dir, tiny_source

__all__ = ["case", "fp32_model_folder", "model_folder", "models_dir", "tiny_source"]
