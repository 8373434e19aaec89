"""Every family's graph against transformers: logits and greedy tokens of small random models, made in float32."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, weights_sha256, write_family
from tests.support.models.teacher_forced import engine_forced

GOLDEN: dict[str, Any] = msgspec.json.decode((Path(__file__).parents[1] / "golden" / "families.json").read_bytes())
CASES: list[dict[str, Any]] = GOLDEN["cases"]
# Measured: at most 1.7e-5, logits being up to 8. The bound leaves room for CPUs that round elsewhere.
FP32_DIFFERENCE = 1e-4
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def prepared(directory: Path, case: dict[str, Any], precision: Any, *, shards: int = 1) -> ModelFolder:
    config = FAMILY_CONFIGS[case["name"]]
    write_family(directory / "source", config, family_tensors(config, case["seed"]), shards=shards)
    return prepare_model(directory, precision, source=directory / "source")


def test_every_family_is_in_the_golden_file() -> None:
    assert [case["name"] for case in CASES] == list(FAMILY_CONFIGS)


@each_case
def test_the_weights_are_those_that_transformers_had(case: dict[str, Any]) -> None:
    assert weights_sha256(family_tensors(FAMILY_CONFIGS[case["name"]], case["seed"])) == case["weights_sha256"]


@each_case
def test_fp32_equals_transformers(tmp_path: Path, case: dict[str, Any]) -> None:
    logits = engine_forced(prepared(tmp_path, case, "fp32", shards=3), case["prompt_ids"], case["answer_ids"])
    assert logits.argmax(axis=1).tolist() == case["answer_ids"]
    np.testing.assert_allclose(logits[0], case["first_logits"], rtol=0, atol=FP32_DIFFERENCE)
    np.testing.assert_allclose(logits[-1], case["last_logits"], rtol=0, atol=FP32_DIFFERENCE)


@each_case
def test_int8_is_near_transformers(tmp_path: Path, case: dict[str, Any]) -> None:
    logits = engine_forced(prepared(tmp_path, case, "int8"), case["prompt_ids"], case["answer_ids"])
    expected = np.array(case["first_logits"])
    assert np.corrcoef(logits[0], expected)[0, 1] > 0.99
