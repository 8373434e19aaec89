"""`python -m tests.integration.support.crashing_worker`: a worker whose native code reads an invalid address during its
first answer.
"""

import itertools
import runpy
import threading
from collections.abc import Sequence
from typing import Any, Final

from workers.engine import DecodeRow
from workers.engine.native.engine import NativeEngine

STEPS: Final = 6

if __name__ == "__main__":
    decode, steps = NativeEngine.decode, itertools.count()

    def crash(engine: Any, rows: Sequence[DecodeRow]) -> list[int]:
        if threading.current_thread().name == "engine" and next(steps) == STEPS:  # its speed is measured elsewhere
            engine._functions.native_step(engine._handle, 1, 1, 1, 1, 0, None, None, None, None)
        return decode(engine, rows)

    NativeEngine.decode = crash  # type: ignore[method-assign]
    runpy.run_module("workers", run_name="__main__")
