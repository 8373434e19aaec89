"""The models that the suites here run on."""

from tests.support.models.fixtures import fp32_model_folder, model_folder, models_dir, tiny_source

__all__ = ["fp32_model_folder", "model_folder", "models_dir", "tiny_source"]
