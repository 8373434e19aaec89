"""The whole command line, as a tree of click's commands."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from ops import cli
from ops.command_line import kind_of


def replyline() -> Any:
    """Return the command `replyline`, with the laboratory's commands in the groups that import them late."""
    root: Any = get_command(cli.app)
    groups = [root]
    while groups:
        group = groups.pop()
        group.list_commands(None)
        groups += [command for command in group.commands.values() if hasattr(command, "commands")]
    return root


def commands_under(group: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command of a group that does something itself, with the words that name it."""
    inner = getattr(group, "commands", None)
    if inner is None or (path and group.invoke_without_command):
        yield path, group
    for name, command in (inner or {}).items():
        yield from commands_under(command, *path, name)


def a_value(parameter: Any) -> str:
    """Return a value that a parameter accepts."""
    kind = kind_of(parameter)
    if get_origin(kind) is Literal:
        return str(get_args(kind)[0])
    return str(parameter.min or 1) if kind in {int, float} else "."
