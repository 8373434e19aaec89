"""The files of a running `replyline up`, under `.run/`: its environment and its log.

A shell sources the environment to reach the demo's gateway, Kafka and Redis. It contains Redis' password: only its
owner may read it, and it is removed with the demo.
"""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from shared.settings.gateway import GatewaySettings

RUN_DIR: Final = Path(".run")
_USUAL_PORT: Final = GatewaySettings.model_fields["port"].default


def demo_env_path(folder: Path, port: int) -> Path:
    """Return the path of a demo's file. It has the port in its name unless that is the default one."""
    return folder / ("demo.env" if port == _USUAL_PORT else f"demo-{port}.env")


def demo_url(folder: Path = RUN_DIR) -> str | None:
    """Return the gateway's address of the only demo on this machine; None without a demo, with several, or with one on
    the default port."""
    files = demo_env_files(folder)
    if len(files) != 1 or files[0] == demo_env_path(folder, _USUAL_PORT):
        return None
    lines = shlex.split(files[0].read_text(), comments=True)
    return next((line.partition("=")[2] for line in lines if line.startswith("REPLYLINE_URL=")), None)


def demo_env_files(folder: Path = RUN_DIR) -> list[Path]:
    """Return the files of the demos running on this machine."""
    return sorted(folder.glob("demo*.env"))


def demo_remedy() -> str:
    """Return the command to type if a demo is running here and this shell has not read its file."""
    files = [] if "REPLYLINE_URL" in os.environ else demo_env_files()
    return f"; for the demo that runs here, type first: source {files[0]}" if files else ""


@contextmanager
def demo_env(path: Path, variables: Mapping[str, str]) -> Iterator[Path]:
    """Create the file atomically; remove it at the end of the block. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    # Only the owner can read the file, from its creation.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        file.write("\n".join(lines) + "\n")
    try:
        Path(file.name).replace(path)
    except OSError:
        Path(file.name).unlink()
        raise
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def stdout_to(path: Path) -> Iterator[TextIO]:
    """Write this process's and its children's stdout to a new file until the block ends. Yield the stdout that was
    there before. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", buffering=1) as terminal:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.close(descriptor)
        try:
            yield terminal
        finally:
            sys.stdout.flush()
            os.dup2(terminal.fileno(), 1)
