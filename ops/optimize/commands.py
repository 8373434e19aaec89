"""The options of `replyline optimize`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

optimize_app = typer.Typer(help="Make a model smaller or faster, and measure what it costs.", no_args_is_help=True)


@optimize_app.callback()
def optimize() -> None:
    """Make a model smaller or faster, and measure what it costs."""


@optimize_app.command("quantize")
def quantize(
    out: Annotated[Path, typer.Option(help="the model's folder to write, for the tensorrt engine")],
    calibration: Annotated[str, typer.Option(metavar="FILE|demo", help="texts as JSONL (docs/quantization.md)")],
    source: Annotated[
        Path | None, typer.Option(help="a GGUF file or a Hugging Face folder (none: the demo's model)")
    ] = None,
    bound: Annotated[
        float, typer.Option(min=0, max=1, help="agreement on every slice below which nothing is published")
    ] = 0.96,
    exclude: Annotated[
        str,
        typer.Option(
            metavar="auto|none|LAYER:MATRIX,…",
            help="activations that stay fp16: *:down,29:gate; weights too: 0:down:fp16",
        ),
    ] = "auto",
    max_length: Annotated[int, typer.Option(min=64, help="tokens that a sequence may have")] = 2_048,
    texts: Annotated[int, typer.Option(min=500, help="to calibrate with, at most")] = 560,
    held_out: Annotated[int, typer.Option(min=20, help="texts of each kind to measure by, at most")] = 40,
    seed: Annotated[int, typer.Option(help="of which texts are taken and which held out")] = 1,
    attention: Annotated[
        bool, typer.Option("--attention-weights", help="keep the projections' weights in 8 bits too")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="calibrate once more without rare texts, and show")
    ] = False,
    json_path: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the report here too")] = None,
    models: Annotated[Path, typer.Option("--dir", help="where the fp32 model is prepared")] = Path(".models"),
) -> None:
    """Round a model's MLP to INT8 for TensorRT. Below the bound nothing is written: one line and exit status 1."""
    from ops.optimize.quantize import QuantizeOptions
    from ops.optimize.quantize import quantize as run

    options = QuantizeOptions(
        calibration=calibration,
        out=out,
        source=source,
        models=models,
        bound=bound,
        exclude=exclude,
        max_length=max_length,
        texts=texts,
        held_out=held_out,
        seed=seed,
        attention=attention,
        compare=compare,
        json_path=json_path,
    )
    raise typer.Exit(run(options, Console(stderr=True)))
