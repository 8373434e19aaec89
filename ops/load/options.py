"""What the commands of `replyline bench` share."""

import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from shared.errors import SettingsError
from shared.settings import Settings, load_settings
from shared.telemetry.logs import configure_logs

JsonPath = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the result, with stable keys")]

HtmlPath = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="write a report that a browser shows, in one file")
]

Url = Annotated[
    str | None, typer.Option(envvar="REPLYLINE_URL", help="a running gateway; without it a system of its own")
]

Broker = Annotated[
    Literal["embedded", "kafka"], typer.Option(help="of the system of its own: in memory, or Apache Kafka")
]


_MOST = 100_000


def bench_settings() -> Settings:
    settings = load_settings()
    configure_logs(settings.log, process="bench")
    return settings


def typed() -> str:
    """The command as a shell takes it."""
    return shlex.join(["replyline", *sys.argv[1:]])


def ensure_model_of(settings: Settings) -> None:
    if settings.worker.engine == "onnx":
        from ops.model.terminal import ensure_model

        ensure_model(settings.model.dir, Console(stderr=True))


def settings_for(url: str | None) -> Settings:
    """Of the system that a bench starts, its model prepared; with a `url` it starts none, and nothing is read."""
    if url is not None:
        return Settings()
    settings = bench_settings()
    ensure_model_of(settings)
    return settings


def run(work: Callable[[], Awaitable[None]]) -> None:
    from ops.measure.runner import run_bench

    raise typer.Exit(run_bench(work))


def check_range(options: Mapping[str, float], *, least: float = 0.001) -> None:
    """Raises `SettingsError`, one line a fault."""
    wrong = [f"{name} {value:g}" for name, value in options.items() if not least <= value <= _MOST]
    if wrong:
        raise SettingsError("\n".join(f"{given}: must be {least:g} to {_MOST}" for given in wrong))
