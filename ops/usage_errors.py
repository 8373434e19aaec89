"""What is wrong with a command line, in one line: the value, what is wrong with it, and where the right ones stand."""

from typing import Any, Final

import typer
from pydantic import ValidationError

from shared.process.lifetime import BAD_INPUT_STATUS, fail

# Typer carries its own copy of click, or uses the installed one, by its version: this is click.UsageError of either.
_USAGE_ERROR: Final[Any] = typer.BadParameter.__base__


def run_app(app: typer.Typer) -> int:
    """Run the command that was typed; the exit status. Typer alone would frame an error in a box of ten lines."""
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
        return f"{error.param.opts[0]} {item['input']}: {wrong[:1].lower()}{wrong[1:]}"
    return " ".join(error.format_message().split()).rstrip(".?")
