"""What the proxy before a server does to a connection: far, narrow, silent, in pieces, slow to close, cut."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvloop

from ops.stack.processes import free_port
from tests.chaos.hops.proxy import Proxy


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


@asynccontextmanager
async def echo_behind(**weather: Any) -> AsyncIterator[Proxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1_000):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    async with (
        await asyncio.start_server(echo, "127.0.0.1", 0) as server,
        Proxy("127.0.0.1", server.sockets[0].getsockname()[1], **weather) as proxy,
    ):
        yield proxy


async def returned(proxy: Proxy, payload: bytes) -> tuple[bytes, float]:
    """What comes back, and after how many seconds."""
    start_s = asyncio.get_running_loop().time()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(payload)
    writer.write_eof()
    back = await reader.read(-1)
    writer.close()
    return back, asyncio.get_running_loop().time() - start_s


async def test_a_far_server_answers_in_order_and_late() -> None:
    """A round trip takes twice the delay at least; many bytes are not each held up by those before."""
    payload = bytes(range(256)) * 400
    async with echo_behind(delay_s=0.02) as proxy:
        back, took_s = await returned(proxy, payload)
    assert back == payload
    assert took_s >= 0.04


async def test_a_narrow_line_takes_its_time_and_loses_nothing() -> None:
    """So many bytes at so many a second; wide again, the same bytes come."""
    payload = bytes(range(256)) * 16
    async with echo_behind(bytes_per_s=40_000.0) as proxy:
        back, took_s = await returned(proxy, payload)
        assert back == payload
        assert took_s >= len(payload) / 40_000.0
        proxy.bytes_per_s = None
        assert (await returned(proxy, payload))[0] == payload


async def test_bytes_come_in_tiny_pieces_and_all_of_them() -> None:
    """No read gives more than what was not read of earlier pieces; what was asked and answered is counted."""
    payload = bytes(range(256)) * 4
    async with echo_behind() as proxy:
        proxy.slice_bytes = 3
        assert (await returned(proxy, payload))[0] == payload
        assert proxy.carried_bytes == 2 * len(payload)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(payload)
        first = await reader.read(len(payload))
        assert len(first) < len(payload)
        assert first + await reader.readexactly(len(payload) - len(first)) == payload
        writer.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("on_server", [True, False])
def test_a_slow_close_is_told_late_to_the_other_side(
    run: Callable[[Coroutine[Any, Any, None]], None], on_server: bool
) -> None:
    """One end hears it at once; the other stands, its bytes are lost, and then it hears it too. A new connection passes
    as ever."""
    run(_slow_close(on_server=on_server))


async def _slow_close(*, on_server: bool) -> None:
    loop = asyncio.get_running_loop()
    at_server: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    with quiet_loop_errors() as errors:
        async with (
            await asyncio.start_server(
                lambda reader, writer: at_server.put_nowait((reader, writer)), "127.0.0.1", 0
            ) as server,
            Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy,
        ):
            ends = [await asyncio.open_connection("127.0.0.1", proxy.port), await at_server.get()]
            (gone, gone_writer), (stands, stands_writer) = reversed(ends) if on_server else ends
            gone_writer.write(b"hello")
            assert await stands.readexactly(5) == b"hello"
            start_s = loop.time()
            proxy.hang_up(on_server=on_server, told_late_s=0.1)
            hears = asyncio.create_task(stands.read())
            assert await gone.read() == b""
            assert not hears.done()
            stands_writer.write(b"into the void")
            assert await hears == b""
            assert loop.time() - start_s >= 0.09  # uvloop's clock has milliseconds
            assert proxy.num_cut == 1
            again, again_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            _, new_writer = await at_server.get()
            new_writer.write(b"again")
            assert await again.readexactly(5) == b"again"
            for writer in (gone_writer, stands_writer, again_writer, new_writer):
                writer.close()
    assert errors == []


async def test_nothing_passes_a_silent_line_until_it_is_lifted() -> None:
    """Its connection stands, and what was sent comes late; a new one stands too."""
    async with echo_behind() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.silence()
        writer.write(b"ping")
        asking = asyncio.create_task(reader.readexactly(4))
        other = asyncio.create_task(returned(proxy, b"new"))
        await asyncio.wait([asking, other], timeout=0.05)
        assert not asking.done()
        assert not other.done()
        proxy.speak()
        assert await asking == b"ping"
        assert (await other)[0] == b"new"
        writer.close()


@pytest.mark.parametrize(("to_server", "to_client"), [(True, False), (False, True)])
async def test_a_line_may_be_silent_in_one_direction(to_server: bool, to_client: bool) -> None:
    """What goes the other way arrives; what was held back comes late."""
    arrived = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.readexactly(4)
        arrived.set()
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_server(greet, "127.0.0.1", 0) as server,
        Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy,
    ):
        proxy.silence(to_server=to_server, to_client=to_client)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"ping")
        greeted, told = asyncio.create_task(reader.readexactly(5)), asyncio.create_task(arrived.wait())
        passes, held = (greeted, told) if to_server else (told, greeted)
        await passes
        await asyncio.wait([held], timeout=0.05)
        assert not held.done()
        proxy.speak()
        await held
        writer.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_reset_cuts_every_connection_and_refuses_no_new_one(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """The client hears a reset, not an end, with bytes on their way too; nothing is left for the event loop to complain
    of, whichever it is."""
    run(_reset())


async def _reset() -> None:
    with quiet_loop_errors() as errors:
        async with echo_behind() as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            proxy.silence()
            writer.write(b"on its way")
            await asyncio.sleep(0.01)
            proxy.reset()
            proxy.speak()
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            writer.close()
            assert (await returned(proxy, b"again"))[0] == b"again"
    assert errors == []


async def test_a_closed_proxy_cuts_its_connections_and_refuses_new_ones() -> None:
    """As a server that was killed does, though the one behind it lives."""
    with quiet_loop_errors() as errors:
        async with echo_behind() as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            assert await reader.read(4) == b"ping"
            await proxy.close()
            assert await reader.read(1) == b""
            writer.close()
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", proxy.port)
    assert errors == []


async def test_a_proxy_without_a_server_ends_its_connections() -> None:
    """Whoever connects sees the end at once."""
    async with Proxy("127.0.0.1", free_port()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await reader.read(1) == b""
        writer.close()
