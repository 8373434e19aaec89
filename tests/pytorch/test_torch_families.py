"""Every model family by the torch engine, compared with transformers and with its stored logits; and SmolLM2."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers

from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from tests.pytorch.torch_engines import forced, on_the_cpu
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from workers.engine.greedy import answer_greedily

GOLDEN = Path(__file__).parents[1] / "golden"
CASES: list[dict[str, Any]] = msgspec.json.decode((GOLDEN / "families.json").read_bytes())["cases"]
SMOLLM2: list[dict[str, Any]] = msgspec.json.decode((GOLDEN / "smollm2_greedy.json").read_bytes())["cases"]
# Measured against the golden file, logits being up to 8: at most 1.1e-5, 2.1e-2 and 0.14.
DIFFERENCE = {"fp32": 1e-4, "fp16": 0.1, "bf16": 0.5}
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def written(directory: Path, case: dict[str, Any]) -> Path:
    config = FAMILY_CONFIGS[case["name"]]
    write_family(directory / "source", config, family_tensors(config, case["seed"]))
    return directory / "source"


@each_case
def test_fp32_equals_transformers_itself(
    tmp_path: Path, case: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare every logit before every token of the answer, and print the largest difference."""
    source = written(tmp_path, case)
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    prompt, answer = case["prompt_ids"], case["answer_ids"]
    with torch.inference_mode():
        expected = model(torch.tensor([[*prompt, *answer[:-1]]])).logits[0, len(prompt) - 1 :].numpy()
    logits = forced(on_the_cpu(prepare_model(tmp_path, "fp32", source=source)), prompt, answer)
    largest = np.abs(logits - expected).max()
    with capsys.disabled():
        sys.stdout.write(f"\n{case['name']}: largest difference of a logit {largest:.1e}\n")
    assert largest < DIFFERENCE["fp32"]
    assert logits.argmax(axis=1).tolist() == answer


@each_case
@pytest.mark.parametrize("precision", DIFFERENCE)
def test_every_precisions_folder_equals_the_golden_file(tmp_path: Path, case: dict[str, Any], precision: Any) -> None:
    """The fp32 weights are read from the CPU's graph, the others from TensorRT's."""
    folder = prepare_model(tmp_path, precision, source=written(tmp_path, case))
    logits = forced(on_the_cpu(folder), case["prompt_ids"], case["answer_ids"])
    np.testing.assert_allclose(logits[0], case["first_logits"], rtol=0, atol=DIFFERENCE[precision])
    np.testing.assert_allclose(logits[-1], case["last_logits"], rtol=0, atol=DIFFERENCE[precision])


def test_smollm2_equals_transformers_token_for_token(fp32_model_folder: ModelFolder) -> None:
    """Six conversations of different lengths in one batch."""
    engine = on_the_cpu(fp32_model_folder, num_slots=6, max_length=256)
    for cases in (SMOLLM2[:6], SMOLLM2[6:]):
        answers = answer_greedily(engine, [case["prompt_ids"] for case in cases], len(cases[0]["answer_ids"]))
        assert answers == [case["answer_ids"] for case in cases]
