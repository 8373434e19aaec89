"""The options of `replyline eval`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import JsonPath, Token, command_typed, gateway_address, output, run, settings_of_own_system
from shared.errors import SettingsError


class EvaluationOptions(Struct, frozen=True, kw_only=True):
    """With `url` a running system is asked, and no variant of it can be chosen."""

    split: Annotated[
        Literal["dev", "held_out", "all"], typer.Option(help="which questions: held_out were fitted on by nothing")
    ] = "held_out"
    language: Annotated[Literal["en", "zh"] | None, typer.Option(help="of the questions (default: both)")] = None
    url: Annotated[
        str | None,
        typer.Option(callback=gateway_address, help="a running gateway's address (none: a system of its own)"),
    ] = None
    token: Token = None
    model_dir: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="the model's folder (default: as set)")
    ] = None
    policy: Annotated[Literal["grounded", "model"] | None, typer.Option(help="who answers (default: as set)")] = None
    guard: Annotated[bool | None, typer.Option("--guard/--no-guard", help="the fact guard (default: as set)")] = None
    fit: Annotated[
        bool, typer.Option("--fit", help="only choose the policy's two thresholds, by the dev questions; asks nobody")
    ] = False
    questions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON Lines (docs/evaluation.md) (default: those of the demo shop)"),
    ] = None
    faq: Annotated[Path | None, typer.Option(metavar="FILE", help="what they are about (default: as set)")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="so many of them, from all over the file")] = None
    clients: Annotated[int, typer.Option(min=1, max=64, help="conversations at a time")] = 6
    require: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="exit with 1 if it is not met: en_right=0.9")
    ] = None
    json_path: JsonPath = None


def evaluate(options: EvaluationOptions) -> None:
    """Ask questions with known answers, and report how many were answered right, by kind, language and source."""
    from ops.evaluation import program
    from shared.settings import load_settings
    from shared.telemetry.logs import configure_logs

    if options.model_dir is not None and not (options.model_dir / "manifest.json").is_file():
        raise SettingsError(f"--model-dir {options.model_dir}: holds no model; run: replyline model prepare")
    settings = load_settings()
    configure_logs(settings.log.model_copy(update={"level": "warning"}), process="eval")
    if options.fit:
        program.show_fit(settings, options, output())
        return
    run(lambda: program.evaluate(settings, options, command_typed(), output()))


class LadderOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench ladder`."""

    full: Annotated[Path, typer.Option(help="the champion's folder: replyline model prepare --precision fp32")] = Path(
        ".models/smollm2-135m-shop-fp32"
    )
    light: Annotated[Path, typer.Option(help="the light model's folder")] = Path(".models/smollm2-135m-shop-int8")
    loads: Annotated[
        list[float] | None,
        typer.Option("--load", min=0.1, max=100, help="multiples of the champion's; repeatable (default: 1, 2, 3)"),
    ] = None
    rate: Annotated[
        float | None, typer.Option(min=0.01, max=1e4, help="questions a second at 1 (default: measured first)")
    ] = None
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="of arrivals in each run")] = 40.0
    rounds: Annotated[int, typer.Option(min=1, max=50, help="of each load, with the ladder and without in turn")] = 2
    seed: Annotated[int, typer.Option(help="of arrivals and questions")] = 0
    json_path: JsonPath = None


def ladder(options: LadderOptions) -> None:
    """Count right answers in time with the ladder and without it, at multiples of what the champion can do."""
    from ops.evaluation.ladder import bench_ladder

    for folder in (options.full, options.light):
        if not (folder / "manifest.json").is_file():
            raise SettingsError(f"{folder}: holds no model; run: replyline model prepare --precision fp32 (or int8)")
    settings = settings_of_own_system(None)
    run(lambda: bench_ladder(options, settings, command_typed(), Console(stderr=True)))
