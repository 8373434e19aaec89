"""What the commands that list a topic's records share: how far back, and what cannot be done with one of them."""

import sys

import typer

from ops.letters import parse_duration_ms, printable


def duration_ms(since: str) -> int:
    """Of `--since`. Raises `typer.BadParameter`."""
    duration = parse_duration_ms(since)
    if duration is None:
        raise typer.BadParameter(f"--since {since!r}: write 30s, 15m, 2h or 7d")
    return duration


def say(line: str) -> int:
    """Why one of them was left, in a line; the exit status that this means."""
    sys.stderr.write(f"replyline: {printable(line)}\n")
    return 1
