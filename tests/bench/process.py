"""A program that measures something alone, run to its end: what it printed, and the most memory that it had; and the
engine of a worker that is measured."""

import asyncio
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ops.measure.usage import peak_rss_bytes
from ops.stack.own_pages import open_page
from ops.stack.processes import Child, ServiceError
from shared.settings import Settings

_POLL_S: Final = 0.05
_TIMEOUT_S: Final = 1_800.0
_SERVED_BY: Final = re.compile(r'replyline_worker_model_info\{.*engine="([^" ]*)')
_MIB: Final = 1 << 20


async def run_to_end(argv: Sequence[str], *, env: Mapping[str, str]) -> tuple[list[bytes], float]:
    """Run `argv` with `env` added to ours: the lines of both its outputs, at least one, and the MiB that were resident
    at most, as of shortly before its end. Raises `ServiceError` with the last line where it fails or never ends."""
    with tempfile.TemporaryDirectory(prefix="replyline-bench-") as directory:
        log = Path(directory, "output")
        child = Child.start(argv, env=env, log=log)
        peak, deadline_s = 0, time.monotonic() + _TIMEOUT_S
        try:
            while child.running and time.monotonic() < deadline_s:
                with suppress(OSError, StopIteration):  # it has ended by this time
                    peak = max(peak, peak_rss_bytes(child.process.pid))
                await asyncio.sleep(_POLL_S)
            late = child.running
        finally:
            child.stop(timeout_s=5)
        lines = (await asyncio.to_thread(log.read_bytes)).splitlines() or [b"it said nothing"]
    if late:
        raise ServiceError(f"not done after {_TIMEOUT_S:.0f} s")
    if child.process.returncode != 0:
        said = lines[-1].decode(errors="replace")
        raise ServiceError(f"ended with status {child.process.returncode}: {said}")
    return lines, peak / _MIB


async def check_engine(settings: Settings, metrics_url: str) -> None:
    """Raises `ServiceError` if a worker runs another engine than requested."""

    def read() -> str:
        with open_page(metrics_url, timeout_s=_TIMEOUT_S) as page:
            return str(page.read(), "utf-8")

    found = _SERVED_BY.search(await asyncio.to_thread(read))
    served, asked = found[1] if found else "nothing", settings.worker.engine
    if served != asked:
        raise ServiceError(f"the worker computes by {served}, not by {asked}; run: replyline doctor")
