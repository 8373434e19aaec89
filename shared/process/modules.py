"""The command that runs a module of this program in another process. Pure."""

import sys


def module_command(module: str, *args: str) -> list[str]:
    """Return the command. Python does not look for modules in the current folder, which may have any files."""
    return [sys.executable, "-P", "-m", module, *args]
