"""What the proxy before a server does to a connection: far, narrow, silent, in pieces, slow to close, cut."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvloop

from ops.stack.processes import free_port
from tests.chaos.hops.proxy import Proxy

PAYLOAD = bytes(range(256)) * 16


@contextmanager
def no_loop_errors() -> Iterator[None]:
    """The event loop has nothing to complain of."""
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    assert errors == []


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1_000):
            writer.write(data)
    except ConnectionError:
        pass
    writer.close()


@asynccontextmanager
async def before(serve: Callable[..., Any] = echo) -> AsyncIterator[Proxy]:
    """A proxy before a server that does this."""
    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        Proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy,
    ):
        yield proxy


async def returned(proxy: Proxy, payload: bytes = b"again") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(payload)
    writer.write_eof()
    back = await reader.read(-1)
    writer.close()
    return back


@pytest.mark.parametrize(
    ("changed", "least_s"), [("delay_s", 0.04), ("bytes_per_s", len(PAYLOAD) / 40_000), ("slice_bytes", 0.0)]
)
async def test_what_is_far_narrow_or_in_pieces_comes_whole_in_order_and_late(changed: str, least_s: float) -> None:
    """A round trip takes twice the delay at least, and many bytes are not each held up by those before."""
    loop = asyncio.get_running_loop()
    async with before() as proxy:
        setattr(proxy, changed, {"delay_s": 0.02, "bytes_per_s": 40_000.0, "slice_bytes": 3}[changed])
        start_s = loop.time()
        assert await returned(proxy, PAYLOAD) == PAYLOAD
        assert loop.time() - start_s >= least_s
        assert proxy.carried_bytes == 2 * len(PAYLOAD)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("on_server", [True, False])
def test_a_slow_close_is_told_late_to_the_other_side(
    run: Callable[[Coroutine[Any, Any, None]], None], on_server: bool
) -> None:
    """One end hears it at once; the other stands, its bytes are lost, and then it hears it too. A new connection passes
    as ever."""
    run(_slow_close(on_server=on_server))


async def _slow_close(*, on_server: bool) -> None:
    at_server: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    with no_loop_errors():
        async with before(lambda *ends: at_server.put_nowait(ends)) as proxy:
            ends = [await asyncio.open_connection("127.0.0.1", proxy.port), await at_server.get()]
            (gone, gone_writer), (stands, stands_writer) = reversed(ends) if on_server else ends
            gone_writer.write(b"hello")
            assert await stands.readexactly(5) == b"hello"
            proxy.hang_up(on_server=on_server, told_late_s=0.1)
            hears = asyncio.create_task(stands.read())
            assert await gone.read() == b""
            assert not hears.done()
            stands_writer.write(b"into the void")
            assert await hears == b""
            assert proxy.num_cut == 1
            again, again_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            _, new_writer = await at_server.get()
            new_writer.write(b"again")
            assert await again.readexactly(5) == b"again"
            for writer in (gone_writer, stands_writer, again_writer, new_writer):
                writer.close()


@pytest.mark.parametrize(("to_server", "to_client"), [(True, True), (True, False), (False, True)])
async def test_what_a_silence_holds_back_comes_late_and_the_other_direction_passes(
    to_server: bool, to_client: bool
) -> None:
    """A connection that is new stands too."""
    arrived = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.readexactly(4)
        arrived.set()
        await reader.read()
        writer.close()

    async with before(greet) as proxy:
        proxy.silence(to_server=to_server, to_client=to_client)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"ping")
        greeted, told = asyncio.create_task(reader.readexactly(5)), asyncio.create_task(arrived.wait())
        held = {task for task, silent in ((told, to_server), (greeted, to_client)) if silent}
        for passes in {told, greeted} - held:
            await passes
        await asyncio.wait(held, timeout=0.05)
        assert not any(task.done() for task in held)
        proxy.speak()
        await asyncio.gather(*held)
        writer.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_reset_cuts_every_connection_and_refuses_no_new_one(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """The client hears a reset, not an end, with bytes on their way too."""
    run(_reset())


async def _reset() -> None:
    with no_loop_errors():
        async with before() as proxy:
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
            assert await returned(proxy) == b"again"


async def test_a_closed_proxy_cuts_its_connections_and_refuses_new_ones() -> None:
    """As a server that was killed does, though the one behind it lives."""
    with no_loop_errors():
        async with before() as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"ping")
            assert await reader.read(4) == b"ping"
            await proxy.close()
            assert await reader.read(1) == b""
            writer.close()
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_a_proxy_without_a_server_ends_its_connections() -> None:
    """Whoever connects sees the end at once."""
    async with Proxy("127.0.0.1", free_port()) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await reader.read(1) == b""
        writer.close()
