"""`python -m tests.integration.support.deadly_worker`: a worker that one question kills, a moment after it
is accepted.
"""

import asyncio
import os
import runpy
import signal
from typing import Any, Final

from workers.intake.prepare import Preparer

DEADLY: Final = "the question that kills"
# Long enough that requests read with it are in flight.
_LIVES_S: Final = 0.3


async def prepare(self: Preparer, order: Any, now_unix_ms: float) -> Any:
    if order.request.input == DEADLY:
        await asyncio.sleep(_LIVES_S)
        os.kill(os.getpid(), signal.SIGKILL)
    return await prepare_well(self, order, now_unix_ms)


prepare_well = Preparer.prepare

if __name__ == "__main__":
    Preparer.prepare = prepare  # type: ignore[method-assign]
    runpy.run_module("workers", run_name="__main__")
