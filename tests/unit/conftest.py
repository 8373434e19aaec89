"""Fixtures for the models and caches of the unit tests, Hypothesis profiles, and logs that no command configures."""

import inspect
import logging
import os
import time
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from shared.process.clock import CLOCKS, Clocks
from tests.support.fakes.kv_workers import workers
from tests.support.models.fixtures import (
    folder,
    fp32_model_folder,
    model_folder,
    models_dir,
    prepared,
    slots_folder,
    tiny_source,
)
from tests.unit.examples import examples

__all__ = [
    "folder",
    "fp32_model_folder",
    "model_folder",
    "models_dir",
    "prepared",
    "slots_folder",
    "tiny_source",
    "workers",
]


@pytest.fixture(scope="session", autouse=True)
def _logs_stay() -> Iterator[None]:
    """A command configures the logs of its whole process; here that is the process of all tests. A traceback is plain:
    one with local variables takes seconds, in which other answers miss their deadlines."""
    renderer = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structlog, "configure", lambda *_, **__: None)
        patched.setattr(logging, "basicConfig", lambda *_, **__: None)
        yield


@pytest.fixture(autouse=True)
def _clock_stands(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that does not wait is one moment: what it reads of the process's clock twice is the same, however long the
    machine pauses between."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        yield
        return
    monotonic_s, wall_s = time.monotonic(), time.time()
    token = CLOCKS.set(Clocks(lambda: monotonic_s, lambda: wall_s, cpu_s=lambda: 0.0))
    yield
    CLOCKS.reset(token)


# Hypothesis examples have no time limit, because any example may be slow on a busy machine; each test has one. If CI is
# set, the examples are always the same, so a result depends only on the change; other runs find new examples.
settings.register_profile("steady", max_examples=examples(100), deadline=None, derandomize="CI" in os.environ)
settings.load_profile("steady")
