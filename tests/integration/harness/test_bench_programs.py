"""What the benches start has begun to serve when they go on, and a connection that is refused is refused once."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from ops.client.dialogue import Dialogue
from ops.client.protocol import ConnectFailed
from ops.load.system import System
from ops.stack.processes import free_port
from shared.settings import Settings

pytestmark = pytest.mark.long


async def test_a_program_that_is_started_again_is_waited_for_again(tmp_path: Path) -> None:
    """Though the one before it of the same name has said in the same log that it was ready."""
    with System(settings=Settings(), broker="embedded", _logs=tmp_path) as system:
        for _ in range(2):
            port = free_port()
            child = await system.start_program("tests.bench.gateway.bare_websocket", str(port))
            dialogue = Dialogue(lambda _message, _now_s: None, lambda: None)
            await dialogue.open(f"ws://127.0.0.1:{port}/")
            dialogue.close()
            system.end(child)


async def test_a_refused_handshake_is_told_once() -> None:
    """By `open`; nothing that was to be told later is left behind."""
    lost: list[None] = []
    left: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: left.append(context))

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        dialogue = Dialogue(lambda _message, _now_s: None, lambda: lost.append(None))
        with pytest.raises(ConnectFailed, match="503"):
            await dialogue.open(f"ws://127.0.0.1:{port}/")
        await asyncio.sleep(0.05)
        del dialogue
        gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert (lost, left) == ([], [])
