"""The command that installs a missing optional part of Replyline."""


def install_command(extra: str) -> str:
    """Return the command that installs one of pyproject.toml's extras, for the checkout that Replyline runs from."""
    return f".venv/bin/pip install -e '.[{extra}]'"
