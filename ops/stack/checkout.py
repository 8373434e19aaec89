"""Commands that install what is missing and start a demo: `make` in a checkout, otherwise pip and `replyline`."""

from pathlib import Path

from shared.process.extras import install_command

IN_CHECKOUT = (Path(__file__).parents[2] / "Makefile").is_file()


def setup_command(extra: str = "embedded") -> str:
    """Return the command that installs what a demo needs: `make setup` in a checkout, otherwise the one that installs
    the extra `extra`."""
    return "make setup" if IN_CHECKOUT else install_command(extra)


def demo_command(port: int | None = None) -> str:
    """Return the command that starts a demo, on `port` if one is given."""
    if IN_CHECKOUT:
        return "make demo" if port is None else f"make demo PORT={port}"
    return "replyline up" if port is None else f"replyline up --port {port}"
