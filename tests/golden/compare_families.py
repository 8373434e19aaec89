"""Prints how far each family's logits lie from transformers', in every dialect; docs/models.md has the largest.

    PYTHONPATH=.:tests .venv/bin/python tests/golden/compare_families.py

The largest difference of a logit after the prompt and after 23 more tokens; with 8-bit weights the share of the 24
greedy tokens that are transformers' too, each given its tokens so far.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ops.model.prepare import prepare_model
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from tests.support.models.teacher_forced import GraphSlots, engine_forced, native_forced
from workers.graph.sources.safetensors import SafetensorsSource


def main() -> None:
    lines = [
        "| model | fp32 | TensorRT's: fp32 | fp16 | int8 | same tokens | native | same tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))["cases"]:
        with tempfile.TemporaryDirectory() as directory:
            lines.append(row(case, Path(directory)))
    sys.stdout.write("\n".join(lines) + "\n")


def row(case: dict[str, Any], directory: Path) -> str:
    config = FAMILY_CONFIGS[case["name"]]
    source = directory / "source"
    write_family(source, config, family_tensors(config, case["seed"]))
    checkpoint = SafetensorsSource.open(source).checkpoint()
    given = case["prompt_ids"], case["answer_ids"]
    fp32 = engine_forced(prepare_model(directory, "fp32", source=source), *given)
    folder = prepare_model(directory, "int8", source=source)
    int8 = [engine_forced(folder, *given), native_forced(folder, *given)]
    tensorrt = [
        GraphSlots(checkpoint, directory / dtype, dtype=dtype).forced(*given) for dtype in ("float32", "float16")
    ]
    cells = [f"{difference(logits, case):.1e}" for logits in (fp32, *tensorrt)]
    for logits in int8:
        cells += [f"{difference(logits, case):.1e}", f"{np.mean(logits.argmax(axis=1) == case['answer_ids']):.2f}"]
    return f"| {' | '.join([case['name'], *cells])} |"


def difference(logits: np.ndarray, case: dict[str, Any]) -> float:
    expected = np.array([case["first_logits"], case["last_logits"]])
    return float(np.abs(logits[[0, -1]] - expected).max())


if __name__ == "__main__":
    main()
