"""The file that a shell reads to work with a running `replyline up`: where its gateway, Kafka and Redis are.

It holds Redis' password, so that nobody but its owner may read it, and it goes with the demo.
"""

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.settings.gateway import GatewaySettings

RUN_DIR: Final = Path(".run")
_USUAL_PORT: Final = GatewaySettings.model_fields["port"].default


def demo_env_path(folder: Path, port: int) -> Path:
    """Each demo's own: two at once have two ports."""
    return folder / ("demo.env" if port == _USUAL_PORT else f"demo-{port}.env")


def demo_env_files(folder: Path = RUN_DIR) -> list[Path]:
    """Return the files of the demos that run here."""
    return sorted(folder.glob("demo*.env"))


def demo_remedy() -> str:
    """Return what to type where a demo runs here and this shell has not read its file."""
    files = [] if "REPLYLINE_URL" in os.environ else demo_env_files()
    return f"; for the demo that runs here, type first: source {files[0]}" if files else ""


@contextmanager
def demo_env(path: Path, variables: Mapping[str, str]) -> Iterator[Path]:
    """There as a whole, until the block ends. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    # The file is its owner's alone from the start.
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
