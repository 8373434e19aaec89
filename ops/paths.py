"""Checks of the files and folders that a command line names, before the command starts anything.

Each check is the `callback` of an option or argument. It raises `SettingsError`: the option, the path and the remedy.
A default path to read is not checked: if it is missing, the command says how to create it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer

from shared.errors import SettingsError

Check = Callable[[typer.Context, typer.CallbackParam, Any], Any]


def to_read(*, file: bool = True, folder: bool = False, names: tuple[str, ...] = ()) -> Check:
    """Return a check that rejects a path that is missing, of the wrong kind or not readable. `names` are accepted in
    place of a path."""
    kind = " or ".join(["file"] * file + ["folder"] * folder)
    wanted = " or ".join(filter(None, [", ".join(names), f"an existing {kind}"]))

    def fault(path: Path) -> str | None:
        if str(path) in names:
            return None
        if not path.exists():
            return f"does not exist; name {wanted}"
        if path.is_dir() and not folder:
            return f"is a folder; name {wanted}"
        if not path.is_dir() and not file:
            return f"is not a folder; name {wanted}"
        if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            return f"may not be read by this user; name another {kind}, or change its permissions"
        return None

    return _check(fault)


def write_fault(path: Path) -> str | None:
    """Return why a file cannot be written, and the remedy; None if it can."""
    if not path.parent.is_dir():
        return f"{path.parent} is not a directory; create it first"
    if path.is_dir():
        return "is a directory; name a file in that directory"
    if not (os.access(path.parent, os.W_OK | os.X_OK) if replaceable(path) else os.access(path, os.W_OK)):
        return "may not be written by this user; name another file"
    return None


def replaceable(path: Path) -> bool:
    """Return whether the path is a regular file or does not exist yet. Links, terminals and pipes are written to
    directly."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def _folder_fault(path: Path) -> str | None:
    """Return why files cannot be written into a folder, which may not exist yet; None if they can."""
    if path.exists() and not path.is_dir():
        return "is not a folder; name a folder"
    if not path.exists() and not path.parent.is_dir():
        return f"{path.parent} is not a directory; create it first"
    if not os.access(path if path.exists() else path.parent, os.W_OK | os.X_OK):
        return "may not be written by this user; name another folder"
    return None


def _check(fault: Callable[[Path], str | None], *, default: bool = False) -> Check:
    """Return a check by `fault`, which returns what is wrong with a path. `default`: check a default path, too."""

    def check(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
        typed = str(context.get_parameter_source(str(parameter.name))).endswith(("COMMANDLINE", "ENVIRONMENT"))
        if value is None or not (typed or default):
            return value
        for path in map(Path, value if isinstance(value, list | tuple) else (value,)):
            try:
                wrong = fault(path)
            except (OSError, ValueError) as error:  # a parent that may not be entered, or a name that is no path
                wrong = f"{getattr(error, 'strerror', None) or error}; name another one"
            if wrong is not None:
                raise SettingsError(f"{label(parameter)} {path}: {wrong}")
        return value

    return check


def label(parameter: Any) -> str:
    """Return the name by which a command's help shows a parameter."""
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0] if is_option else (parameter.metavar or parameter.name.upper()).strip("[.]"))


FILE_TO_READ: Final = to_read()
FOLDER_TO_READ: Final = to_read(file=False, folder=True)
PATH_TO_READ: Final = to_read(folder=True)
FILE_TO_WRITE: Final = _check(write_fault, default=True)
FOLDER_TO_WRITE: Final = _check(_folder_fault)
