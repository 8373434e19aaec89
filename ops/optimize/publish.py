"""Writes a model with an 8-bit MLP as the folder that the `tensorrt` engine reads: whole or not at all."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from ops.model.prepare import put_in_place, workshop_of
from ops.optimize.report import REPORT, Report
from shared.model.folder import GRAPH, GRAPH_DATA, TOKENIZER, Manifest, ModelFolder, file_entry, write_manifest
from workers.engine.device.slots import slot_capacity
from workers.graph.eight_bit.grids import GridName
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.tensorrt import write_tensorrt_decoder

_PRECISIONS: Final[dict[GridName, Literal["int8-mlp", "fp8-mlp"]]] = {"int8": "int8-mlp", "fp8": "fp8-mlp"}


def publish(
    out: Path,
    original: ModelFolder,
    checkpoint: Checkpoint,
    rounded: Mapping[str, RoundedLinear],
    report: Report,
    *,
    max_length: int,
    primitive: bool,
    progress: Callable[[float], None],
) -> ModelFolder:
    """Write `out`, for sequences of `max_length` tokens, and return it; a folder that is there is replaced.

    `original` is the float32 model's, of whose weights the smoothed `checkpoint` and the products `rounded` are made.
    With `primitive` the graph is for TensorRT before 10.15.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with workshop_of(out) as workshop:
        folder = workshop.path
        capacity = slot_capacity(max_length, original.manifest.architecture.max_positions)
        write_tensorrt_decoder(
            checkpoint, folder, max_length=capacity, rounded=rounded, primitive=primitive, progress=progress
        )
        (folder / TOKENIZER).write_bytes(original.read(TOKENIZER))
        (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        files = tuple(file_entry(folder / file) for file in (GRAPH, GRAPH_DATA, TOKENIZER, REPORT))
        manifest = Manifest(
            name=original.manifest.name,
            # What the source became depends on the calibration: the numbers are named by what was written.
            revision=hashlib.sha256(f"{files[0].sha256}/{files[1].sha256}".encode()).hexdigest(),
            precision=_PRECISIONS[report.mlp],
            source=original.manifest.source,
            architecture=original.manifest.architecture,
            stop_token_ids=original.manifest.stop_token_ids,
            chat_template=original.manifest.chat_template,
            files=files,
            dialect="tensorrt-primitive" if primitive else "tensorrt",
            max_length=capacity,
        )
        write_manifest(folder, manifest)
        put_in_place(workshop, out)
    return ModelFolder.open(out)
