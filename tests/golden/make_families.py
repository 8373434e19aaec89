"""Makes families.json: transformers' own logits and greedy tokens, in float32, of small random models of each family.

    python -m venv reference && reference/bin/pip install . onnx torch transformers
    PYTHONPATH=.:tests reference/bin/python tests/golden/make_families.py

The weights are not stored: `tests/support/models/families.py` writes the same bytes again anywhere.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.models.families import FAMILY_CONFIGS, family_tensors, weights_sha256, write_family

NUM_PROMPT, NUM_ANSWER = 40, 24


def main() -> None:
    cases = [made(name, seed) for seed, name in enumerate(FAMILY_CONFIGS, 1)]
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, float32"
    rows = ",\n  ".join(json.dumps(case) for case in cases)
    document = f'{{\n "made_by": {json.dumps(made_by)},\n "cases": [\n  {rows}\n ]\n}}\n'
    Path(__file__).with_name("families.json").write_text(document, encoding="utf-8")


def made(name: str, seed: int) -> dict[str, Any]:
    config = FAMILY_CONFIGS[name]
    tensors = family_tensors(config, seed)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        write_family(folder, config, tensors)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise SystemExit(f"{name}: transformers does not know these weights: {wrong}")
    prompt = [3 + int(bits) % 256 for bits in np.random.PCG64(seed).random_raw(NUM_PROMPT)]
    ids = list(prompt)
    logits = []
    with torch.inference_mode():
        for _ in range(NUM_ANSWER):
            logits.append(model(torch.tensor([ids])).logits[0, -1].numpy())
            ids.append(int(logits[-1].argmax()))
    return {
        "name": name,
        "seed": seed,
        "weights_sha256": weights_sha256(tensors),
        "prompt_ids": prompt,
        "answer_ids": ids[NUM_PROMPT:],
        "first_logits": [float(f"{value:.6g}") for value in logits[0]],
        "last_logits": [float(f"{value:.6g}") for value in logits[-1]],
    }


if __name__ == "__main__":
    main()
