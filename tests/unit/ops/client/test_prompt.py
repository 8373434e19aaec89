"""A line is read from a terminal or a pipe; a pending read does not delay the end of the program."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ops.client.prompt import Prompt


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The pipe's read and write ends; both are closed at the end, which ends any pending reader."""
    reader, writer = os.pipe()
    yield reader, writer
    with suppress(OSError):
        os.close(writer)
    for thread in threading.enumerate():
        if thread.name == "prompt":
            thread.join(5)
    os.close(reader)


async def test_lines_come_one_by_one_and_then_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.write(writer, " Grüße \n\n退货\nthe last, without an end".encode())
    os.close(writer)
    prompt = Prompt(reader)
    assert [await prompt.line() for _ in range(6)] == ["Grüße", "", "退货", "the last, without an end", None, None]


async def test_a_line_may_come_in_pieces(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    line = asyncio.ensure_future(Prompt(reader).line())
    for piece in (b"Where is ", b"my parcel?", b"\n"):
        await asyncio.sleep(0)
        assert not line.done()
        os.write(writer, piece)
    assert await line == "Where is my parcel?"


async def test_an_interrupt_ends_the_wait_for_a_line_from_its_first_sign_on(pipe: tuple[int, int]) -> None:
    assert await Prompt(pipe[0], lambda: os.kill(os.getpid(), signal.SIGINT)).line() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_event_loop_ends_while_a_line_is_waited_for(pipe: tuple[int, int]) -> None:
    """Its end waits for its own threads."""

    async def ask_in_vain() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await Prompt(pipe[0]).line()

    asyncio.run(ask_in_vain())
    assert "prompt" in {thread.name for thread in threading.enumerate()}
