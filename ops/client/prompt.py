"""The lines that are typed at a terminal, read on a thread that nobody waits for.

A read cannot be called off: on one of the event loop's own threads it holds up the end of the process until Enter is
pressed, since the loop waits for its threads. And `os.read` holds no lock of Python's: a thread that waits in
`sys.stdin` would break the interpreter's end.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_READ_BYTES: Final = 65_536


class Prompt:
    """Lines read from a file descriptor. `ask` shows that one is waited for: from then on Ctrl-C is
    heard."""

    def __init__(self, descriptor: int, ask: Callable[[], None] = lambda: None, *, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._ask = ask
        self._encoding = encoding
        self._unread = b""

    async def line(self) -> str | None:
        """Return the next line, stripped; None at the end of the input and at Ctrl-C. After that no other can be asked
        for."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def settle(found: str | None) -> None:
            if not line.done():
                line.set_result(found)

        def read() -> None:
            found = self._read()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, found)

        loop.add_signal_handler(signal.SIGINT, settle, None)
        try:
            self._ask()
            threading.Thread(target=read, name="prompt", daemon=True).start()
            return await line
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _read(self) -> str | None:
        while b"\n" not in self._unread:
            try:
                some = os.read(self._descriptor, _READ_BYTES)
            except OSError:  # the terminal is gone
                some = b""
            if not some:
                break
            self._unread += some
        line, end, self._unread = self._unread.partition(b"\n")
        return line.decode(self._encoding, errors="replace").strip() if line or end else None
