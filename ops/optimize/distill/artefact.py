"""What a training leaves: an adapter in PEFT's files, and a manifest of what it was made from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from ops.optimize.distill.tensors import write_tensors
from shared.model.folder import sha256_of
from workers.graph.sources.adapter import CONFIG, LORA_MODULES, MANIFEST, TENSORS, AdapterManifest

_PREFIX: Final = "base_model.model.model."


def write_adapter(
    folder: Path,
    down: Mapping[str, NDArray[Any]],
    up: Mapping[str, NDArray[Any]],
    *,
    alpha: float,
    name: str,
    base: str,
    base_sha256: str,
    data_sha256: str,
    made_by: Mapping[str, str],
    seed: int,
    steps: int,
) -> AdapterManifest:
    """Write the three files, the manifest last. `down` `[r, in]` and `up` `[out, r]` are by a matrix's canonical name;
    they are kept in float16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for matrix in down:
        tensors[f"{_PREFIX}{matrix}.lora_A.weight"] = down[matrix].astype(np.float16)
        tensors[f"{_PREFIX}{matrix}.lora_B.weight"] = up[matrix].astype(np.float16)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": len(next(iter(down.values()))),
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(LORA_MODULES),
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "inference_mode": True,
    }
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
    write_tensors(folder / TENSORS, tensors, {"format": "pt"})
    manifest = AdapterManifest(
        name=name,
        base=base,
        base_sha256=base_sha256,
        files={file: sha256_of(folder / file) for file in (CONFIG, TENSORS)},
        made_by=dict(made_by),
        data_sha256=data_sha256,
        seed=seed,
        steps=steps,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest
