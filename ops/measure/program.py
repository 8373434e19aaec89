"""A program of ours that runs to its end and prints its result."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ops.stack.processes import Child, ServiceError

_POLL_S: Final = 0.05


async def run_program(module: str, *args: str, env: Mapping[str, str], timeout_s: float) -> bytes:
    """The last line that `python -m module args` prints. Raises `ServiceError` with it where the program fails."""
    with tempfile.TemporaryDirectory(prefix="replyline-bench-") as directory:
        log = Path(directory, "output")
        child = Child.start([sys.executable, "-m", module, *args], env=env, log=log)
        try:
            await _until_ended(child, timeout_s)
        finally:
            child.stop(timeout_s=5)
        lines = _lines(log)
    if child.process.returncode != 0:
        raise ServiceError(
            f"{module} ended with status {child.process.returncode}: {lines[-1].decode(errors='replace')}"
        )
    return lines[-1]


async def _until_ended(child: Child, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while child.running and time.monotonic() < deadline_s:  # noqa: ASYNC110 - a process's end sets no event
        await asyncio.sleep(_POLL_S)


def _lines(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines() or [b"it said nothing"]
