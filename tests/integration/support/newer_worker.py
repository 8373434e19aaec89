"""`python -m tests.integration.support.newer_worker`: a worker that takes itself for one of another release."""

import importlib.metadata
import runpy
from typing import Final

NEWER: Final = "999.0"

if __name__ == "__main__":
    importlib.metadata.version = lambda _: NEWER
    runpy.run_module("workers", run_name="__main__")
