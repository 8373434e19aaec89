"""The options of `replyline eval`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console


def evaluate(
    split: Annotated[
        Literal["dev", "held_out", "all"], typer.Option(help="which questions: held_out were fitted on by nothing")
    ] = "held_out",
    language: Annotated[Literal["en", "zh"] | None, typer.Option(help="of the questions [default: both]")] = None,
    url: Annotated[str | None, typer.Option(help="a running gateway's address (none: a system of its own)")] = None,
    token: Annotated[
        str | None, typer.Option(envvar="REPLYLINE_TOKEN", help="with --url: who asks; the variable is not shown by ps")
    ] = None,
    model_dir: Annotated[Path | None, typer.Option(help="the model's folder [default: as set]")] = None,
    policy: Annotated[Literal["grounded", "model"] | None, typer.Option(help="who answers [default: as set]")] = None,
    guard: Annotated[bool | None, typer.Option("--guard/--no-guard", help="the fact guard [default: as set]")] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="only choose the policy's two thresholds, by the dev questions; asks nobody")
    ] = False,
    questions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON Lines (docs/evaluation.md) [default: those of the demo shop]"),
    ] = None,
    faq: Annotated[Path | None, typer.Option(metavar="FILE", help="what they are about [default: as set]")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="so many of them, from all over the file")] = None,
    clients: Annotated[int, typer.Option(min=1, max=64, help="conversations at a time")] = 6,
    require: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="exit with 1 if it is not met: en_right=0.9")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the figures, and every answer to read")
    ] = None,
) -> None:
    """Ask questions with known answers, and say how many were answered right, by kind, language and source."""
    from ops.evaluation import program
    from ops.evaluation.asking import Variant
    from ops.evaluation.judging.questions import PACKAGED_QUESTIONS
    from ops.evaluation.judging.result import parse_bound
    from ops.measure.runner import run_bench
    from shared.settings import load_settings
    from shared.telemetry.logs import configure_logs

    settings = load_settings()
    configure_logs(settings.log.model_copy(update={"level": "warning"}), process="eval")
    options = program.Options(
        command=shlex.join(["replyline", *sys.argv[1:]]),
        split=split,
        language=language,
        questions=questions or PACKAGED_QUESTIONS,
        limit=limit,
        clients=clients,
        url=url,
        token=token,
        variant=Variant(model_dir=model_dir, policy=policy, guard=guard, faq=faq),
        bounds=[parse_bound(text) for text in require or []],
        json_path=json_path,
    )
    if fit:
        program.show_fit(settings, options, Console())
        return
    raise typer.Exit(run_bench(lambda: program.evaluate(settings, options, Console())))
