"""Every family and shape with every kernel of the native engine that runs here is near transformers, in 8 and 4 bits.

Random weights deviate more than a trained model's once the inputs of a product are rounded to 8 bits: ONNX Runtime's
int8 logits differ from transformers' by 0.29 at most, the native engine's by 0.34, logits being up to 8; with experts,
of which rounding may choose another, by 0.41 and 0.50.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from tests.conformance.test_dialects import CASES, each_case, prepared
from tests.support.models.families import FAMILY_CONFIGS, SHAPE_CONFIGS, family_tensors, write_family
from tests.support.models.gguf_files import write_gguf
from tests.support.models.native_library import native_library
from tests.support.models.packed import packed_logits
from tests.support.models.reference import reference_logits
from tests.support.models.teacher_forced import native_forced
from workers.graph.sources.gguf import GgufSource
from workers.graph.sources.safetensors import SafetensorsSource

PROMPT = CASES[0]["prompt_ids"]
ANSWER = PROMPT[:24]
TEXT = [*PROMPT, *ANSWER[:-1]]


def near(logits: np.ndarray, expected: np.ndarray, within: float) -> None:
    assert np.corrcoef(logits.reshape(-1), expected.reshape(-1))[0, 1] > 0.99
    assert np.abs(logits - expected).max() < within


def every_kernel_is_near(folder: ModelFolder, expected: np.ndarray) -> None:
    """Compare after each token of the answer; numpy's reading of the packed file is compared too, if nothing else is
    rounded.
    """
    near(packed_logits(folder, TEXT)[len(PROMPT) - 1 :], expected, 1.0)
    for kernel in native_library().kernels:
        near(native_forced(folder, PROMPT, ANSWER, kernel), expected, 1.0)


@each_case
def test_every_family_is_near_transformers(tmp_path: Path, case: dict[str, Any]) -> None:
    folder = prepared(tmp_path, case, "int8")
    for kernel in native_library().kernels:
        logits = native_forced(folder, case["prompt_ids"], case["answer_ids"], kernel)
        near(logits[[0, -1]], np.array([case["first_logits"], case["last_logits"]]), 0.6)


@pytest.mark.parametrize("name", SHAPE_CONFIGS)
def test_every_shape_is_near_the_reference(tmp_path: Path, name: str) -> None:
    write_family(tmp_path / "source", SHAPE_CONFIGS[name], family_tensors(SHAPE_CONFIGS[name], 7))
    checkpoint = SafetensorsSource.open(tmp_path / "source").checkpoint()
    folder = prepare_model(tmp_path, "int8", source=tmp_path / "source")
    every_kernel_is_near(folder, reference_logits(checkpoint, TEXT)[len(PROMPT) - 1 :])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
@pytest.mark.parametrize("name", ["llama", "llama, grouped, tied", "llama, head_dim 64", "llama, head_dim 128, tied"])
def test_four_bits_are_near_the_reference_of_the_same_numbers(tmp_path: Path, name: str, kind: str) -> None:
    config = {**FAMILY_CONFIGS, **SHAPE_CONFIGS}[name]
    write_family(tmp_path / "source", config, family_tensors(config, 7))
    write_gguf(tmp_path / "model.gguf", tmp_path / "source", kind=kind)
    expected = reference_logits(GgufSource.open(tmp_path / "model.gguf").checkpoint(), TEXT)
    folder = prepare_model(tmp_path, "q4", source=tmp_path / "model.gguf")
    every_kernel_is_near(folder, expected[len(PROMPT) - 1 :])
