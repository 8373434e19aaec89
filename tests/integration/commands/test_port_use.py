"""A port that Replyline listens on is distinguished from one of another program."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from gateway.frontends.static import StaticFiles
from ops.stack.port_use import PortUse, port_use
from ops.stack.processes import free_port

HOST = "127.0.0.1"
Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def says_that_it_is_well(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request with the health page's text."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{"status":"ok"}')
    writer.close()


async def speaks_no_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ready\r\n")
    writer.close()


@asynccontextmanager
async def stranger(reply: Reply) -> AsyncIterator[int]:
    async with await asyncio.start_server(reply, HOST, 0) as server:
        port: int = server.sockets[0].getsockname()[1]
        yield port


async def test_a_port_without_listener_is_free() -> None:
    assert await asyncio.to_thread(port_use, HOST, free_port()) is PortUse.FREE


@pytest.mark.parametrize("host", [HOST, "0.0.0.0"])
async def test_a_gateway_of_ours_is_recognised_by_its_page(host: str) -> None:
    files = StaticFiles()

    def page(_: ServerConnection, request: Request) -> Response | None:
        return files.get(request)

    async def nobody(_: ServerConnection) -> None: ...

    async with await serve(nobody, host, 0, process_request=page) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        assert await asyncio.to_thread(port_use, host, port) is PortUse.REPLYLINE


@pytest.mark.parametrize("reply", [says_nothing, says_that_it_is_well, speaks_no_http])
async def test_another_program_is_not_recognised(reply: Reply) -> None:
    async with stranger(reply) as port:
        assert await asyncio.to_thread(port_use, HOST, port) is PortUse.OTHER
