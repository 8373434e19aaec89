"""Code that the commands share: common options, settings, and one-line error messages."""

import inspect
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer
from msgspec import NODEFAULT
from pydantic import ValidationError
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_group

from ops.paths import FILE_TO_WRITE, label, to_read
from ops.stack.own_services import Broker
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import Settings, load_settings
from shared.telemetry.logs import configure_logs

# How `--help` groups the commands.
RUN_PANEL: Final = "Run"
ASK_PANEL: Final = "Ask"
SET_UP_PANEL: Final = "Set up"
OPERATE_PANEL: Final = "Operate"
VERSIONS_PANEL: Final = "Change the model"
MEASURE_PANEL: Final = "Measure and plan"
_PIPED_WIDTH: Final = 500
_LAB: Final = "ops.lab.commands"
# What Python turns bytes of a word into that are not UTF-8. Such text cannot be printed.
_NO_UTF8: Final = re.compile("[\ud800-\udfff]")
# An option with an empty variable in a script: `--token="$TOKEN"`.
_BLANK: Final = re.compile(r"(--[a-z][a-z0-9-]*)[ =]\s*")
_DASHED: Final = re.compile(r"-[0-9.][0-9./]*|-.*\s.*", re.DOTALL)
# Depending on its version, Typer includes its own copy of click or uses the installed one. This is click.UsageError of
# either.
_USAGE_ERROR: Final[Any] = typer.BadParameter.__base__


def gateway_address(url: str | None) -> str | None:
    """Return a gateway's address unchanged. Raises `SettingsError` if it is not valid."""
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


OwnBroker = Annotated[Broker, typer.Option(help="broker of the system that it starts: in memory, or Apache Kafka")]
JsonPath = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", callback=FILE_TO_WRITE, help="write the result as JSON, with stable keys"),
]
HtmlPath = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=FILE_TO_WRITE, help="write an HTML report, in one file"),
]
Costs = Annotated[
    str,
    typer.Option(
        metavar="cpu|gpu|FILE",
        callback=to_read(names=("cpu", "gpu")),
        help="cpu (measured), gpu (given), or the file of a worker's calibration",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="REPLYLINE_TOKEN", help="the token; unlike the option, the variable is not shown by ps"
    ),
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
        help="a running gateway (default: start a system)",
    ),
]
DEFAULT_URL: Final = "ws://127.0.0.1:8080/ws"


class WithLab(TyperGroup):
    """A group of commands to which the laboratory adds some. They are imported when one of them, or the list of all
    commands, is needed; the operator's own commands never import them."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self._add_lab()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        self._add_lab()
        return super().list_commands(ctx)

    def _add_lab(self) -> None:
        apps: dict[str, typer.Typer] = import_module(_LAB).APPS
        for name, command in get_group(apps[self.name or ""]).commands.items():
            self.commands.setdefault(name, command)


def by_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` for typer. Its last parameter is a Struct, whose fields become the options."""
    *before, last = inspect.signature(command).parameters.values()
    options: type[msgspec.Struct] = get_type_hints(command)[last.name]
    hints = get_type_hints(options, include_extras=True)

    def typed(**given: Any) -> None:
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
    """Read the settings and configure logging."""
    settings = load_settings(**overrides)
    configure_logs(settings.log, process=process)
    return settings


def output() -> Console:
    """Return standard output. In a pipe or a file, lines are not cut at 80 columns."""
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)


def command_typed() -> str:
    """Return the current command, quoted for a shell."""
    return shlex.join(["replyline", *sys.argv[1:]])


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run a bench to its end, and exit with its status."""
    from ops.measure.runner import run_bench

    raise typer.Exit(run_bench(work))


def run_app(app: typer.Typer) -> int:
    """Run the command on the command line; return the exit status. Typer itself would print an error as a box of ten
    lines."""
    for before, word in pairwise(["replyline", *sys.argv[1:]]):
        if _NO_UTF8.search(word):
            return fail(f"{word!r} is not UTF-8; write it in UTF-8", BAD_INPUT_STATUS)
        if (blank := _BLANK.fullmatch(word)) or not word.strip():
            after = blank[1] if blank else before
            return fail(f"the value after {after} is blank; write one, or leave it out", BAD_INPUT_STATUS)
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
    if not message:  # a group without a command: print its help
        typer.echo(error.ctx.get_help(), err=True)
        return BAD_INPUT_STATUS
    return fail(f"{message}; see: {error.ctx.command_path} --help", BAD_INPUT_STATUS)


def kind_of(parameter: Any) -> Any:
    """Return the type of a parameter's value, or of a list's items; None if Typer is too old to say."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    while get_args(kind) and get_origin(kind) is not Literal:
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return kind


def one_of(names: Iterable[str]) -> str:
    """Return the remedy for a value that is none of these names."""
    *most, last = names
    return f"write {', '.join(most)} or {last}" if most else f"write {last}"


def _message(error: Any) -> str:
    if (dashed := _dashed(error)) is not None:
        return dashed
    parameter = getattr(error, "param", None)
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ValidationError) and parameter is not None:  # its text omits the value
        item = cause.errors(include_url=False)[0]
        remedy = _remedy(parameter) or item["msg"]
        return f"{label(parameter)} {item['input']}: {remedy}"
    if isinstance(error, typer.BadParameter) and parameter is None:
        return str(error.message)
    return " ".join(error.format_message().split()).rstrip(".?")


def _remedy(parameter: Any) -> str | None:
    """Return what to write for a parameter with choices or of numbers; None for any other."""
    kind = kind_of(parameter)
    if get_origin(kind) is Literal:
        return one_of(get_args(kind))
    if kind not in {int, float}:
        return None
    number = "a whole number" if kind is int else "a number"
    least, most = (None if bound is None else _plain(bound) for bound in (parameter.min, parameter.max))
    if least is not None and most is not None:
        return f"write {number} from {least} to {most}"
    return f"write {number}" + (f" of at least {least}" if least else f" of at most {most}" if most else "")


def _plain(number: float) -> str:
    """Return a number without an exponent."""
    return str(number) if isinstance(number, int) else f"{number:.9f}".rstrip("0").rstrip(".")


def _dashed(error: Any) -> str | None:
    """Return the message for an argument that the parser reads as an option: a negative number, or words that begin
    with a dash; None for any other error."""
    option = getattr(error, "option_name", "")
    word = next((word for word in sys.argv if word.startswith(option) and _DASHED.fullmatch(word)), None)
    arguments = [each for each in error.ctx.command.params if each.param_type_name == "argument"] if error.ctx else []
    if not option or word is None or not arguments:
        return None
    if " " not in word and label(arguments[0]) == "NUMBER":
        return f"NUMBER {word}: must not be negative"
    return f"{label(arguments[0])} {word}: {_remedy(arguments[0]) or 'begins with a dash; write -- before it'}"
