"""Read a LoRA adapter as PEFT saves it, check that it fits a checkpoint, and add it to the checkpoint's weights: `W +
alpha / r * B @ A`, in float32.

    adapter/
    ├── adapter_config.json         r, lora_alpha, target_modules
    ├── adapter_model.safetensors   base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight `[r, in]`, …
    └── manifest.json               this module's `AdapterManifest`; missing if PEFT wrote the folder

The rows of the query and key matrices are in the order of Hugging Face's checkpoints, which `Checkpoint` uses too, so
one adapter fits both the safetensors and the GGUF file of a model. See https://arxiv.org/abs/2106.09685.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np
from msgspec import Struct

from shared.errors import ModelError
from shared.model.folder import sha256_of
from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight
from workers.graph.sources.safetensors import tensors_of

CONFIG: Final = "adapter_config.json"
TENSORS: Final = "adapter_model.safetensors"
MANIFEST: Final = "manifest.json"

# A module of PEFT's `target_modules` → its name in a layer.
LORA_MODULES: Final[Mapping[str, str]] = {
    **{f"{part}_proj": f"self_attn.{part}_proj" for part in "qkvo"},
    **{f"{part}_proj": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}

_MAX_JSON_BYTES: Final = 1_048_576
_LARGEST_RANK: Final = 4_096
_NAME: Final = re.compile(
    r"(?:base_model\.model\.)?(?:model\.)?(?P<matrix>layers\.\d+\.\w+\.\w+)\.lora_(?P<part>[AB])(?:\.default)?\.weight"
)
# What makes another sum of it than the one above, with the value at which it does not.
_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "use_rslora": (False, None),
    "use_dora": (False, None),
    "bias": ("none", None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "fan_in_fan_out": (False, None),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
}


class _Config(Struct, frozen=True, kw_only=True):
    """The part of `adapter_config.json` that is computed with; the rest is looked at in `_UNSUPPORTED` alone."""

    peft_type: str
    r: int
    lora_alpha: float
    target_modules: list[str] | str
    base_model_name_or_path: str | None = None


class AdapterManifest(Struct, frozen=True, kw_only=True):
    """The sources of an adapter of `replyline optimize distill`, and the sha256 of its files by name.

    `base_sha256` is `source_sha256` of the student. `made_by` are the command's options, `data_sha256` is of the
    examples, `steps` and `seed` say the rest.
    """

    name: str
    base: str
    base_sha256: str
    files: dict[str, str]
    made_by: dict[str, str]
    data_sha256: str
    seed: int
    steps: int


@dataclass(frozen=True, slots=True)
class Adapter:
    """A complete adapter. `sha256` is computed from its two files and does not depend on its manifest.

    `down` `[r, in]` and `up` `[out, r]` are stored by the matrix's canonical name.
    """

    path: Path
    name: str
    sha256: str
    scale: float
    down: Mapping[str, Float32Array]
    up: Mapping[str, Float32Array]
    manifest: AdapterManifest | None

    @classmethod
    def open(cls, path: Path, *, source_sha256: str | None = None) -> Self:
        """`source_sha256` is of the model that it is for. Raises `ModelError`, in one line, if a file is missing,
        damaged, or of a kind that is not supported, or the manifest names another model."""
        config = _read_config(path / CONFIG)
        manifest = _read_manifest(path)
        if manifest is not None and source_sha256 is not None and manifest.base_sha256 != source_sha256:
            raise ModelError(
                f"adapter {path} was made for {manifest.base} (sha256 {manifest.base_sha256[:12]}…), "
                f"this model is sha256 {source_sha256[:12]}…; give the adapter's own model"
            )
        file = path / TENSORS
        if not file.is_file():
            raise ModelError(f"adapter {path} has no {TENSORS}; give the folder that PEFT's save_pretrained wrote")
        down, up = _matrices(file, config)
        files = "".join(f"{name} {sha256_of(path / name)}\n" for name in (CONFIG, TENSORS))
        return cls(
            path=path,
            name=manifest.name if manifest else path.resolve().name,
            sha256=hashlib.sha256(files.encode()).hexdigest(),
            scale=config.lora_alpha / config.r,
            down=down,
            up=up,
            manifest=manifest,
        )

    def merged(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with the adapter in it, matrix by matrix as they are read.

        Raises `ModelError` if a matrix that it changes is not there or is of another shape.
        """
        weights = dict(checkpoint.weights)
        for name in self.down:
            weight = weights.get(name)
            if weight is None:
                layers = checkpoint.architecture.num_layers
                raise ModelError(
                    f"adapter {self.path} changes {name}, which this model of {layers} layers does not have; "
                    "give the adapter's own model"
                )
            shape = (self.up[name].shape[0], self.down[name].shape[1])
            if weight.shape != shape:
                raise ModelError(
                    f"adapter {self.path} is of another model: its {name} is for a matrix {_sizes(shape)}, "
                    f"this model's is {_sizes(weight.shape)}"
                )
            weights[name] = Weight(weight.shape, partial(self._sum, name, weight))
        return Checkpoint(architecture=checkpoint.architecture, weights=weights)

    def _sum(self, name: str, weight: Weight) -> Float32Array:
        added = self.up[name] @ self.down[name]
        merged: Float32Array = weight.read() + added * np.float32(self.scale)
        return merged


def _read_config(path: Path) -> _Config:
    try:
        with path.open("rb") as file:
            encoded = file.read(_MAX_JSON_BYTES)
        everything = msgspec.json.decode(encoded, type=dict[str, Any])
        config = msgspec.convert(everything, _Config)
    except OSError as error:
        raise ModelError(f"cannot read {path} ({error.strerror}); give an adapter's folder (PEFT, LoRA)") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({error}); fetch the adapter again") from error
    if config.peft_type != "LORA":
        raise ModelError(f"{path}: peft_type {config.peft_type!r} is not supported, only LORA is")
    for option, harmless in _UNSUPPORTED.items():
        if option in everything and everything[option] not in harmless:
            raise ModelError(
                f"{path}: {option}={everything[option]!r} is not supported; merge the adapter with PEFT's "
                "merge_and_unload and prepare the result"
            )
    if not 1 <= config.r <= _LARGEST_RANK or not np.isfinite(config.lora_alpha):
        raise ModelError(f"{path}: r={config.r}, lora_alpha={config.lora_alpha:g} are no rank and scale of LoRA")
    if isinstance(config.target_modules, list):
        unknown = sorted({module.rpartition(".")[2] for module in config.target_modules} - LORA_MODULES.keys())
        if unknown:
            raise ModelError(
                f"{path}: target module {unknown[0]!r} is not supported, only {', '.join(LORA_MODULES)} are"
            )
    return config


def _read_manifest(path: Path) -> AdapterManifest | None:
    """Read the manifest; return None if the file is missing. Raises `ModelError` if it is damaged or a file is not the
    one that it names."""
    file = path / MANIFEST
    if not file.is_file():
        return None
    try:
        manifest = msgspec.json.decode(file.read_bytes()[:_MAX_JSON_BYTES], type=AdapterManifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelError(f"{file} is damaged ({error}); fetch the adapter again") from error
    for name in (CONFIG, TENSORS):
        if not (path / name).is_file() or sha256_of(path / name) != manifest.files.get(name):
            raise ModelError(f"{path / name} is not the file whose sha256 {MANIFEST} tells; fetch the adapter again")
    return manifest


def _matrices(file: Path, config: _Config) -> tuple[dict[str, Float32Array], dict[str, Float32Array]]:
    """Every `A` and every `B`, by the matrix that they are added to, in pairs."""
    parts: dict[str, dict[str, Float32Array]] = {"A": {}, "B": {}}
    for name, weight in tensors_of(file).items():
        match = _NAME.fullmatch(name)
        known = match is not None and match["matrix"].partition(".")[2].partition(".")[2] in LORA_MODULES.values()
        if match is None or not known:
            raise ModelError(f"{file}: tensor {name!r} belongs to no matrix that an adapter may change here")
        rank_axis = 0 if match["part"] == "A" else 1
        if len(weight.shape) != 2 or weight.shape[rank_axis] != config.r:  # noqa: PLR2004 - a matrix
            raise ModelError(f"{file}: tensor {name!r} is {_sizes(weight.shape)}, which is not of rank {config.r}")
        values = weight.read()
        if not np.isfinite(values).all():
            raise ModelError(f"{file}: tensor {name!r} holds values that are not finite; train the adapter again")
        parts[match["part"]][match["matrix"]] = values
    down, up = parts["A"], parts["B"]
    if not down and not up:
        raise ModelError(f"{file} holds no matrix of LoRA")
    alone = sorted(down.keys() ^ up.keys())
    if alone:
        raise ModelError(f"{file}: {alone[0]} has only one of lora_A and lora_B; fetch the adapter again")
    return down, up


def _sizes(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "a single number"
