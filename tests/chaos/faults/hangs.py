"""A device that hangs: `python -m tests.chaos.faults.hangs FILE MODULE …` runs a worker whose engine never ends the
step in which it finds FILE.

The engine removes the file first, so the test that created it sees when the step begins to hang. The rest of the
process continues. In a step in which it finds FILE.segfault the engine reads an invalid address, as faulty native code
might.
"""

import ctypes
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from workers.engine import DecodeRow
from workers.engine.fake import FakeEngine

SEGFAULT: Final = ".segfault"
_ENGINE_THREAD: Final = "engine"  # calibration decodes on another: a worker that hangs there would never begin

Decode = Callable[[FakeEngine, Sequence[DecodeRow]], list[int]]


def hanging_at(file: Path, decode: Decode, hang: Callable[[], object]) -> Decode:
    """Return a decode that takes the file, if it is there, and then calls `hang` first."""

    def decode_or_hang(engine: FakeEngine, rows: Sequence[DecodeRow]) -> list[int]:
        if threading.current_thread().name == _ENGINE_THREAD and taken(file):
            hang()
        return decode(engine, rows)

    return decode_or_hang


def taken(file: Path) -> bool:
    """Remove the file. Return whether it existed: of several concurrent callers, one gets True."""
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def main() -> None:
    file = Path(sys.argv[1])
    patched: Any = FakeEngine
    crashing = hanging_at(file.with_suffix(SEGFAULT), FakeEngine.decode, lambda: ctypes.string_at(1))
    patched.decode = hanging_at(file, crashing, threading.Event().wait)
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
