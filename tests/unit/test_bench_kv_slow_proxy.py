"""A Redis that is far away, or gone: what the proxy before it does to a connection."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ops.bench.kv_slow_proxy import SlowProxy
from ops.processes import free_port


@contextmanager
def quiet_loop_errors() -> Iterator[list[dict[str, Any]]]:
    """What the event loop would otherwise only log."""
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    try:
        yield errors
    finally:
        loop.set_exception_handler(None)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1_000):
        writer.write(data)
    writer.close()


async def test_a_slow_proxy_brings_everything_in_order_and_late() -> None:
    """A round trip takes twice the delay at least; many bytes are not each held up by those before."""
    payload = bytes(range(256)) * 400
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with SlowProxy("127.0.0.1", port, delay_s=0.02) as proxy:
            start_s = asyncio.get_running_loop().time()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(payload)
            writer.write_eof()
            returned = await reader.read(-1)
            took_s = asyncio.get_running_loop().time() - start_s
            writer.close()
    assert returned == payload
    assert took_s >= 0.04


async def test_a_closed_proxy_cuts_its_connections_and_refuses_new_ones() -> None:
    """As a Redis that was killed does, though the one behind it lives."""
    with quiet_loop_errors() as errors:
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            proxy = SlowProxy("127.0.0.1", server.sockets[0].getsockname()[1])
            async with proxy:
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(b"ping")
                assert await reader.read(4) == b"ping"
                await proxy.close()
                assert await reader.read(1) == b""
                writer.close()
                with pytest.raises(ConnectionError):
                    await asyncio.open_connection("127.0.0.1", proxy.port)
    assert errors == []


async def test_a_proxy_without_a_target_ends_its_connections() -> None:
    """Whoever connects sees the end at once."""
    async with SlowProxy("127.0.0.1", free_port()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await reader.read(1) == b""
        writer.close()
