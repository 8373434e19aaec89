"""The options of `replyline eval`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct

from ops.command_line import JsonPath, Token, gateway_address
from ops.paths import FILE_TO_READ, FOLDER_TO_READ, PATH_TO_READ


class EvaluationOptions(Struct, frozen=True, kw_only=True):
    """With `url` a running system is asked, and no variant of it can be chosen."""

    split: Annotated[
        Literal["dev", "held_out", "all"], typer.Option(help="which questions: held_out were fitted on by nothing")
    ] = "held_out"
    language: Annotated[Literal["en", "zh"] | None, typer.Option(help="of the questions (default: both)")] = None
    url: Annotated[
        str | None,
        typer.Option(callback=gateway_address, help="a running gateway's address (none: start a system)"),
    ] = None
    token: Token = None
    model_dir: Annotated[
        Path | None, typer.Option(callback=FOLDER_TO_READ, help="the model's folder (default: as set)")
    ] = None
    policy: Annotated[Literal["grounded", "model"] | None, typer.Option(help="who answers (default: as set)")] = None
    guard: Annotated[bool | None, typer.Option("--guard/--no-guard", help="the fact guard (default: as set)")] = None
    fit: Annotated[
        bool,
        typer.Option("--fit", help="only choose the policy's two thresholds, by the dev questions; asks no system"),
    ] = False
    questions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=FILE_TO_READ,
            help="JSON Lines (docs/evaluation.md) (default: those of the demo shop)",
        ),
    ] = None
    faq: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=PATH_TO_READ, help="what they are about (default: as set)")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="number of questions, spread over the file")] = None
    clients: Annotated[int, typer.Option(min=1, max=64, help="conversations at a time")] = 6
    require: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="exit with 1 if it is not met: en_right=0.9")
    ] = None
    json_path: JsonPath = None
