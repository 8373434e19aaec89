"""A log names the place of a fault and contains nothing that a customer wrote."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from typing import Any

import msgspec
import pytest
import structlog

from shared.process.lifetime import run_until_signal
from shared.telemetry.logs import log_unhandled, render_exception
from shared.telemetry.terminal import show_exception

WORDS = "my card is 4111 1111"
CARD = "4111"  # on a terminal the source lines around a frame are shown: the test's own lines do not contain the text
HOSTILE = f"it's \"{WORDS}\"\n'{WORDS}'"


def logged(fault: Callable[[], object]) -> tuple[str, list[dict[str, Any]]]:
    """Return the line that `log.exception` writes about a fault, and its exceptions."""
    out = StringIO()
    log = structlog.wrap_logger(
        structlog.PrintLogger(out), processors=[render_exception, structlog.processors.JSONRenderer()]
    )
    try:
        fault()
    except Exception:
        log.exception("failed")
    return out.getvalue(), json.loads(out.getvalue())["exception"]


def shown(fault: Callable[[], object]) -> str:
    """Return what `log.exception` shows of a fault on a terminal."""
    out = StringIO()
    console = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=show_exception)
    log = structlog.wrap_logger(structlog.PrintLogger(out), processors=[console])
    try:
        fault()
    except Exception:
        log.exception("failed")
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def wrapped(text: str) -> None:
    try:
        {}[text]
    except KeyError as error:
        error.add_note(f"while reading {text!r}")
        raise ExceptionGroup("two", [ValueError(f"no number: {text!r}"), error]) from error


FAULTS: list[Callable[[str], object]] = [
    float,
    int,
    lambda text: {}[text],
    lambda text: msgspec.convert({"type": text}, dict[str, int]),
    lambda text: msgspec.json.decode(json.dumps(text), type=float, strict=False),
    lambda text: getattr(object, text),
    lambda text: text.encode() + text,
    wrapped,
]


@pytest.mark.parametrize("text", [WORDS, HOSTILE])
@pytest.mark.parametrize("fault", FAULTS)
def test_values_quoted_by_an_exception_are_left_out(fault: Callable[[str], object], text: str) -> None:
    line, exceptions = logged(lambda: fault(text))
    assert CARD not in line
    assert exceptions[0]["exc_type"].endswith(("Error", "ExceptionGroup"))
    assert exceptions[0]["frames"]


@pytest.mark.parametrize("text", [WORDS, HOSTILE])
@pytest.mark.parametrize("fault", FAULTS)
def test_values_quoted_by_an_exception_are_left_out_on_a_terminal(fault: Callable[[str], object], text: str) -> None:
    told = shown(lambda: fault(text))
    assert CARD not in told
    assert "Traceback (most recent call last)" in told
    assert "test_logs.py" in told


def test_on_a_terminal_a_cause_and_a_note_are_named_without_their_values() -> None:
    told = shown(lambda: wrapped(WORDS))
    assert all(line in told for line in ("KeyError: '…'", "while reading '…'", "ValueError: no number: '…'"))


def test_the_rest_of_an_exceptions_text_stays() -> None:
    def fail() -> None:
        raise RuntimeError("out of memory at step 7")

    _, (told,) = logged(fail)
    assert (told["exc_type"], told["exc_value"]) == ("RuntimeError", "out of memory at step 7")
    assert told["frames"][-1]["name"] == "fail"


def test_a_fault_that_ends_a_process_gives_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    async def serve(_: asyncio.Event) -> None:
        float(WORDS)

    with structlog.testing.capture_logs() as lines:
        assert run_until_signal(serve) == 1
    assert [(line["event"], line["log_level"]) for line in lines] == [("failed", "error")]
    assert capsys.readouterr() == ("", "")


async def test_a_failing_callback_is_logged_without_its_arguments() -> None:
    def fail(text: str) -> None:
        raise RuntimeError("a fault of our own")

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(log_unhandled)
    try:
        with structlog.testing.capture_logs() as lines:
            loop.call_soon(fail, WORDS)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(before)
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("unhandled", "error")
    assert isinstance(line["exc_info"], RuntimeError)
    assert WORDS not in str(line)


def test_a_line_names_its_process_in_every_thread() -> None:
    program = (
        "import threading\n"
        "from shared.settings import LogSettings\n"
        "from shared.telemetry.logs import configure_logs, get_logger\n"
        "configure_logs(LogSettings(), process='worker')\n"
        "thread = threading.Thread(target=lambda: get_logger().info('answered'))\n"
        "thread.start(), thread.join()\n"
    )
    line = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(line)["process"] == "worker"


@pytest.mark.parametrize("failing", ["disk", "reader"])
def test_a_line_that_cannot_be_written_fails_nothing(failing: str) -> None:
    program = """
import logging, os
from shared.settings import LogSettings
from shared.telemetry.logs import configure_logs, get_logger
configure_logs(LogSettings(), process="gateway")
for _ in range(1_000):
    get_logger().info("a line")
    logging.getLogger("other").warning("another")
os._exit(7)
"""
    reading, writing = os.pipe() if failing == "reader" else (None, os.open("/dev/full", os.O_WRONLY))
    if reading is not None:
        os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-c", program], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (7, "")
