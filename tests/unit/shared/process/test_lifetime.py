"""The end of a process: signals, and work that is abandoned when the process is asked to end."""

import asyncio
import gc
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from typing import Any, Literal

import pytest

import workers.__main__ as worker_main
from shared.errors import ModelError, SettingsError
from shared.process.lifetime import Stopped, run_until_signal, until_stopped
from shared.settings import Settings
from shared.telemetry.status import Drain

_SIGNALLED = """
import os, signal, sys
from shared.errors import ModelError, SettingsError
from shared.process.lifetime import run_until_signal

class Again:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.{again}):
        kill(pid, number)

async def serve(stop):
    os.kill(os.getpid(), signal.{first})
    await stop.wait()
    print("asked to end", flush=True)
    if {while_it_serves}:
        Again()

sys.modules["again"] = Again()  # deleted when the interpreter no longer handles signals
sys.exit(run_until_signal(serve))
"""


@pytest.mark.parametrize("while_it_serves", [True, False], ids=["while it serves", "as the interpreter ends"])
@pytest.mark.parametrize(
    ("first", "again", "status"), [("SIGTERM", "SIGTERM", 0), ("SIGINT", "SIGTERM", 0), ("SIGTERM", "SIGINT", -2)]
)
def test_a_second_sigterm_changes_nothing_and_a_second_sigint_ends_at_once(
    first: str, again: str, status: int, while_it_serves: bool
) -> None:
    program = _SIGNALLED.format(first=first, again=again, while_it_serves=while_it_serves)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "asked to end\n", "")


async def test_work_that_ends_as_the_process_is_asked_to_end_is_not_used() -> None:
    stop = asyncio.Event()

    async def work() -> None:
        stop.set()

    with pytest.raises(Stopped):
        await until_stopped(stop, work())


async def test_a_worker_asked_to_end_does_not_wait_for_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stop = asyncio.Event(), asyncio.Event()

    async def choices(*_: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def serve_status(*_: Any) -> AsyncExitStack:
        return AsyncExitStack()

    monkeypatch.setattr(worker_main, "choices", choices)
    monkeypatch.setattr(worker_main, "_read_faq", lambda _: None)
    monkeypatch.setattr(worker_main, "serve_status", serve_status)
    serving = asyncio.create_task(worker_main.serve(Settings(), stop))
    await asked.wait()
    stop.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert serving.done()
    assert isinstance(serving.exception(), Stopped)


def test_the_collector_is_rare_from_the_start() -> None:
    """Loading makes many objects and no cycles: with Python's thresholds a tenth of a worker's start is spent there."""
    seen = []

    async def serve(_: asyncio.Event) -> None:
        seen.append(gc.get_threshold()[0])

    before = gc.get_threshold()
    try:
        assert run_until_signal(serve) == 0
    finally:
        gc.set_threshold(*before)
    assert seen[0] >= 50_000


@pytest.mark.parametrize("engine", ["native", "upstream"])
async def test_a_worker_reads_its_faq_while_the_engine_is_loaded(
    engine: Literal["native", "upstream"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two faults the engine's is raised, and the other is not logged."""
    read = threading.Event()

    def read_faq(_: object) -> None:
        read.set()
        raise SettingsError("bad FAQ")

    async def load(_: object) -> None:
        await asyncio.to_thread(read.wait, 10)
        raise ModelError("no model")

    monkeypatch.setattr(worker_main, "_read_faq", read_faq)
    monkeypatch.setattr(worker_main, "_load", load)
    monkeypatch.setattr(worker_main, "upstream_model", lambda _: None)
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    url = "http://127.0.0.1:9597/v1" if engine == "upstream" else ""
    settings = Settings(worker={"engine": engine}, upstream={"url": url})  # type: ignore[arg-type]
    with pytest.raises(SettingsError if engine == "upstream" else ModelError):
        await worker_main._build(settings, asyncio.Event(), Drain())
    gc.collect()
    await asyncio.sleep(0)
    assert not unhandled
