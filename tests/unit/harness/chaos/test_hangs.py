"""A worker whose engine is made to hang: in its next step, once, and nowhere else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.faults.hangs import hanging_at, taken
from workers.serving.engine_thread import EngineThread

TOKENS = [7]


@pytest.fixture
def decode(file: Path) -> tuple[Callable[[], None], list[str]]:
    """A step, and what came of those that were made."""
    seen: list[str] = []
    step = hanging_at(file, lambda _engine, _rows: TOKENS, lambda: seen.append("hangs"))
    engine: Any = None

    def once() -> None:
        assert step(engine, []) == TOKENS
        seen.append("ends")

    return once, seen


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worker-0.hang"


def run_as_the_engine(step: Callable[[], None]) -> None:
    async def run() -> None:
        await EngineThread(step).ended()

    asyncio.run(run())


def test_the_engine_hangs_in_the_step_that_finds_the_file_and_takes_it_away(
    file: Path, decode: tuple[Callable[[], None], list[str]]
) -> None:
    """The worker that is started again finds none."""
    once, seen = decode
    run_as_the_engine(once)
    file.touch()
    run_as_the_engine(once)
    assert not file.exists()
    run_as_the_engine(once)
    assert seen == ["ends", "hangs", "ends", "ends"]


def test_what_is_measured_at_the_start_does_not_hang(file: Path, decode: tuple[Callable[[], None], list[str]]) -> None:
    """It runs on another thread; a worker that hung there would never begin."""
    once, seen = decode
    file.touch()
    once()
    assert seen == ["ends"]
    assert file.exists()


def test_of_two_who_take_the_file_one_has_it(file: Path) -> None:
    """The engine that hangs, or whoever gives up waiting for it."""
    file.touch()
    assert [taken(file), taken(file)] == [True, False]
