"""The whole command line, as a tree of click's commands."""

from typing import Any

from typer.main import get_command

from ops import cli


def replyline() -> Any:
    """Return the command `replyline`, with the laboratory's commands in the groups that import them late."""
    root: Any = get_command(cli.app)
    groups = [root]
    while groups:
        group = groups.pop()
        group.list_commands(None)
        groups += [command for command in group.commands.values() if hasattr(command, "commands")]
    return root
