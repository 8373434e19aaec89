"""The native engine's library for tests: the one that a worker in this checkout uses."""

import os
from pathlib import Path

import pytest

from shared.settings import load_settings
from workers.engine.native.build import LIBRARY, Recipe, ensure_built
from workers.engine.native.library import Library
from workers.engine.unusable import Unusable


def native_dir() -> Path:
    """Return the library's folder, after building it if it is missing. Fail the test, naming the command, if the build
    fails."""
    directory = load_settings().worker.native_library_dir.absolute()
    built = ensure_built(directory, Recipe(), os.environ)
    if isinstance(built, Unusable):
        pytest.fail(f"the native engine: {built.reason}; or type: ops/setup/native", pytrace=False)
    return directory


def native_library(kernel: str = "auto") -> Library:
    """It, loaded; `kernels` are those that this machine can run."""
    return Library.load(Recipe().folder(native_dir()) / LIBRARY, kernel)
