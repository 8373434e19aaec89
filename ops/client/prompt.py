"""Read lines typed at a terminal, on a thread that nothing waits for.

A read cannot be cancelled. On one of the event loop's own threads it would delay the end of the process until Enter is
pressed, because the loop waits for its threads. `os.read` holds no Python lock, whereas a thread blocked in `sys.stdin`
would break the interpreter's shutdown.
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
    """Lines from a file descriptor. `ask` is called when a line is expected; from that moment Ctrl-C is handled."""

    def __init__(self, descriptor: int, ask: Callable[[], None] = lambda: None, *, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._ask = ask
        self._encoding = encoding
        self._unread = b""

    async def line(self) -> str | None:
        """Return the next line, stripped; None at the end of the input and on Ctrl-C. After None, do not call it
        again."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def settle(found: str | None) -> None:
            if not line.done():
                line.set_result(found)

        def read() -> None:
            found = self._read()
            with suppress(RuntimeError):  # the loop has ended in the meantime
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
            except OSError:  # the terminal was closed
                some = b""
            if not some:
                break
            self._unread += some
        line, end, self._unread = self._unread.partition(b"\n")
        return line.decode(self._encoding, errors="replace").strip() if line or end else None
