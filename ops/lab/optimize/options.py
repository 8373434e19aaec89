"""The options of `replyline optimize`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct

from ops.paths import FOLDER_TO_WRITE, PATH_TO_READ, to_read
from shared.wire.fields import MAX_SEED

_Model = Annotated[
    Path | None,
    typer.Option(callback=PATH_TO_READ, help="a GGUF file or a Hugging Face folder (default: the demo's model)"),
]
_Examples = Annotated[
    str,
    typer.Option(
        metavar="FILE|demo",
        callback=to_read(names=("demo",)),
        help="examples as JSONL (docs/models.md); demo: the packaged FAQ's",
    ),
]


class QuantizeOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline optimize quantize`."""

    out: Annotated[
        Path, typer.Option(callback=FOLDER_TO_WRITE, help="the model's folder to write, for the tensorrt engine")
    ]
    calibration: Annotated[
        str,
        typer.Option(
            metavar="FILE|demo",
            callback=to_read(names=("demo",)),
            help="texts as JSONL (docs/models.md); demo: the packaged FAQ's",
        ),
    ]
    source: _Model = None
    bound: Annotated[
        float, typer.Option(min=0, max=1, help="minimum agreement on every kind of text; below it nothing is published")
    ] = 0.96
    exclude: Annotated[
        str, typer.Option(metavar="PATTERN,…", help="matrices whose activations stay fp16: *.down_proj,layers.0.*")
    ] = ""
    max_length: Annotated[int, typer.Option(min=64, help="maximum tokens per sequence")] = 2_048
    texts: Annotated[int, typer.Option(min=500, help="maximum number of texts to calibrate with")] = 500
    held_out: Annotated[int, typer.Option(min=20, help="maximum number of texts of each kind to measure by")] = 40
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="seed of the choice of texts")] = 1
    mlp: Annotated[Literal["int8", "fp8"], typer.Option(help="fp8 is E4M3, for GPUs from SM 89 on (Ada, Hopper)")] = (
        "int8"
    )
    models: Annotated[
        Path, typer.Option("--dir", callback=FOLDER_TO_WRITE, help="where the fp32 model is prepared")
    ] = Path(".models")


class DistillOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline optimize distill`."""

    out: Annotated[
        Path, typer.Option(callback=FOLDER_TO_WRITE, help="the adapter's folder to write, including loss.jsonl")
    ]
    student: _Model = None
    teacher: Annotated[
        Path | None,
        typer.Option(
            callback=PATH_TO_READ, help="likewise, with the student's vocabulary; the student learns its logits (KL)"
        ),
    ] = None
    targets: _Examples = "demo"
    name: Annotated[str | None, typer.Option(help="name of the model with the adapter (default: STUDENT-FOLDER)")] = (
        None
    )
    held_out: Annotated[
        float, typer.Option(min=0, max=0.9, help="share of a file's examples used only for measuring")
    ] = 0.1
    epochs: Annotated[int, typer.Option(min=1, help="how often each example is shown")] = 3
    rank: Annotated[int, typer.Option(min=1, max=512, help="rank of LoRA's matrices")] = 8
    alpha: Annotated[int, typer.Option(min=1, help="LoRA's scale, times the rank")] = 16
    learning_rate: Annotated[float, typer.Option(min=1e-7, max=1, help="peak learning rate of AdamW")] = 1e-3
    batch: Annotated[int, typer.Option(min=1, help="examples per step")] = 4
    max_length: Annotated[
        int, typer.Option(min=16, help="maximum tokens of prompt and answer; longer examples are skipped")
    ] = 512
    dtype: Annotated[Literal["bf16", "fp32"], typer.Option(help="dtype of the model; trained weights are fp32")] = (
        "bf16"
    )
    device: Annotated[Literal["auto", "cpu"], typer.Option(help="auto: use a GPU if there is one")] = "auto"
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="seed of the examples' order and of the initial matrices")
    ] = 1
    checkpoint_every: Annotated[
        int, typer.Option(min=1, help="steps between checkpoints, from which --resume continues")
    ] = 20
    resume: Annotated[bool, typer.Option("--resume", help="continue the training begun in --out")] = False


class PruneOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline optimize prune`."""

    out: Annotated[Path, typer.Option(callback=FOLDER_TO_WRITE, help="the smaller model's folder to write")]
    source: _Model = None
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|none",
            callback=to_read(file=False, folder=True, names=("none",)),
            help="the LoRA adapter to merge first (default: the demo's, for the demo's model)",
        ),
    ] = None
    faster: Annotated[
        float, typer.Option(min=1, max=10, help="remove parts until a decode step of 8 rows is this many times as fast")
    ] = 1.25
    layers: Annotated[int | None, typer.Option(min=1, help="keep this many layers, at any speed")] = None
    kv_groups: Annotated[
        int | None,
        typer.Option(min=1, help="keep this many KV heads of each layer, with their query heads"),
    ] = None
    channels: Annotated[int | None, typer.Option(min=32, help="keep this many channels of each MLP")] = None
    vocabulary: Annotated[
        int | None,
        typer.Option(min=300, help="keep this many tokens: those of the examples, then the most frequent"),
    ] = None
    targets: _Examples = "demo"
    texts: Annotated[int, typer.Option(min=4, help="number of examples on which the divergence is measured")] = 8
    max_length: Annotated[
        int, typer.Option(min=16, help="maximum tokens of prompt and answer; longer examples are skipped")
    ] = 512
    whole: Annotated[
        Path | None,
        typer.Option(callback=FOLDER_TO_WRITE, help="write the unpruned model here too, as the teacher of `distill`"),
    ] = None
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="seed of the choice of examples")] = 1
