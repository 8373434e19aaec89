"""Code that the commands share: options that are declared once, settings, and what is wrong with a line, in one
line."""

import inspect
import math
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec
import typer
from msgspec import NODEFAULT
from pydantic import ValidationError
from rich.console import Console

from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import Settings, load_settings
from shared.telemetry.logs import configure_logs

_PIPED_WIDTH: Final = 500
# What Python makes of a word's bytes that are no UTF-8. No message can be written with it.
_NO_UTF8: Final = re.compile("[\ud800-\udfff]")
# As a script writes an option whose variable is empty: `--token "$TOKEN"`.
_BLANK: Final = re.compile(r"(--[a-z][a-z0-9-]*)[ =]\s*")
# Typer carries its own copy of click, or uses the installed one, by its version: this is click.UsageError of either.
_USAGE_ERROR: Final[Any] = typer.BadParameter.__base__


def writable(option: str) -> Callable[[Path | None], Path | None]:
    """Return what refuses a file that cannot be written where it is named."""

    def check(path: Path | None) -> Path | None:
        from ops.measure.runner import check_writable

        check_writable(path, option)
        return path

    return check


def gateway_address(url: str | None) -> str | None:
    """Return a gateway's address as it is. Raises `SettingsError` where it is none."""
    if url is not None:
        from shared.client.socket import address_of

        address_of(url)
    return url


def gateway_or_demo(context: typer.Context, url: str) -> str | None:
    """Return a gateway's address: the one given, else that of the demo that runs in this folder. Raises
    `SettingsError` if it is not an address."""
    if str(context.get_parameter_source("url")).endswith("DEFAULT"):
        from ops.stack.demo_env import demo_url

        return demo_url() or url
    return gateway_address(url)


Broker = Literal["embedded", "kafka"]
OwnBroker = Annotated[Broker, typer.Option(help="of the system that it starts: in memory, or Apache Kafka")]
JsonPath = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", callback=writable("--json"), help="write the result, with stable keys"),
]
HtmlPath = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", callback=writable("--html"), help="write a report that a browser shows, in one file"
    ),
]
Token = Annotated[
    str | None, typer.Option("--token", envvar="REPLYLINE_TOKEN", help="who asks; the variable is not shown by ps")
]
UrlOfGateway = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="REPLYLINE_URL",
        callback=gateway_or_demo,
        help="the gateway's WebSocket address; without it, the demo's that runs in this folder",
    ),
]
UrlOrOwn = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="REPLYLINE_URL",
        callback=gateway_address,
        help="a running gateway (none: start a system)",
    ),
]
DEFAULT_URL: Final = "ws://127.0.0.1:8080/ws"


def by_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` as typer takes it: its last parameter is a Struct, whose fields become the options."""
    *before, last = inspect.signature(command).parameters.values()
    options: type[msgspec.Struct] = get_type_hints(command)[last.name]
    hints = get_type_hints(options, include_extras=True)

    def typed(**given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise typer.BadParameter(f"--{name.replace('_', '-')} {value}: must be a number")
        passed = [given.pop(parameter.name) for parameter in before]
        command(*passed, options(**given))

    typed.__name__, typed.__doc__ = command.__name__, command.__doc__
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is NODEFAULT else each.default,
            annotation=hints[each.name],
        )
        for each in msgspec.structs.fields(options)
    ]
    leading = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in before]
    typed.__signature__ = inspect.Signature([*leading, *parameters])  # type: ignore[attr-defined]
    typed.__annotations__ = {each.name: each.annotation for each in (*leading, *parameters)}
    return typed


def settings_of(process: str, **overrides: Any) -> Settings:
    """Read the settings, and log as they say."""
    settings = load_settings(**overrides)
    configure_logs(settings.log, process=process)
    return settings


def settings_of_own_system(url: str | None = None) -> Settings:
    """Return those of the system that a bench starts, its model prepared; with a `url` it starts none."""
    if url is not None:
        return Settings()
    settings = settings_of("bench")
    from ops.model.terminal import ensure_engine

    ensure_engine(settings, Console(stderr=True))
    return settings


def output() -> Console:
    """Return standard output. Where no terminal shows it (a pipe, a file), a line is not cut at 80 columns."""
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)


def command_typed() -> str:
    """Return the command as a shell takes it."""
    return shlex.join(["replyline", *sys.argv[1:]])


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a bench to its end, and exit with its status."""
    from ops.measure.runner import run_bench

    raise typer.Exit(run_bench(work))


def run_app(app: typer.Typer) -> int:
    """Run the command that was typed; the exit status. Typer alone would frame an error in a box of ten lines."""
    for before, word in pairwise(sys.argv):
        if _NO_UTF8.search(word):
            return fail(f"{word!r} is not UTF-8; write it in UTF-8", BAD_INPUT_STATUS)
        if blank := _BLANK.fullmatch(f"{before} {word}") or _BLANK.fullmatch(word):
            return fail(f"the value after {blank[1]} is blank; write one, or leave it out", BAD_INPUT_STATUS)
    try:
        status = app(standalone_mode=False)
    except _USAGE_ERROR as error:
        return _say(error)
    except typer.Abort:
        return 1
    return status if isinstance(status, int) else 0


def _say(error: Any) -> int:
    message = _message(error)
    if error.ctx is None:
        return fail(f"{message}; see: replyline --help", BAD_INPUT_STATUS)
    if not message:  # a group without its command: its help says it all
        typer.echo(error.ctx.get_help(), err=True)
        return BAD_INPUT_STATUS
    return fail(f"{message}; see: {error.ctx.command_path} --help", BAD_INPUT_STATUS)


def _message(error: Any) -> str:
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ValidationError) and error.param is not None:  # its text leaves the value out
        item = cause.errors(include_url=False)[0]
        wrong = item["msg"].removeprefix("Value error, ").rstrip(".")
        name = error.param.opts[0] if error.param.param_type_name == "option" else error.param.name.upper()
        return f"{name} {item['input']}: {wrong[:1].lower()}{wrong[1:]}"
    return " ".join(error.format_message().split()).rstrip(".?")
