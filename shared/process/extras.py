"""The command to type where an optional part of Replyline is not installed."""


def install_command(extra: str) -> str:
    """Return the command that installs one of the extras in pyproject.toml, typed in the checkout that Replyline runs
    from."""
    return f".venv/bin/pip install -e '.[{extra}]'"
