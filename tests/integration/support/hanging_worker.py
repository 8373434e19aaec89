"""`python -m tests.integration.support.hanging_worker`: a worker whose device hangs at the first decode of an answer;
if `HOLDS_ALL` is set in the environment, in a call that does not release the GIL.
"""

import os
import re
import runpy
import sys
import threading
from typing import Final

from workers.engine.fake import FakeEngine

HANGS: Final = "the device hangs"
HOLDS_ALL: Final = "TEST_HOLDS_ALL"


def hang(self: object, rows: object) -> list[int]:
    sys.stdout.write(HANGS + "\n")
    sys.stdout.flush()
    if HOLDS_ALL in os.environ:
        re.match(r"(a+)+$", "a" * 64 + "b")  # practically for ever, and no other thread runs during it
    threading.Event().wait()
    return []


if __name__ == "__main__":
    decode = FakeEngine.decode
    FakeEngine.decode = lambda *given: (  # type: ignore[method-assign]
        hang(*given)
        if threading.current_thread().name == "engine"
        else decode(*given)  # otherwise its speed is measured
    )
    runpy.run_module("workers", run_name="__main__")
