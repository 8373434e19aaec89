"""permessage-deflate, by setting: what a client sees, and that it is no way around the limits."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from gateway.frontends.sockets import send_frames, serve_sockets
from shared.settings.gateway import GatewaySettings

Opened = Callable[..., AbstractAsyncContextManager[ClientConnection]]
FRAME = b'{"type":"response.output_text.delta","delta":"the refund is on its way"}'


async def _echo(socket: ServerConnection) -> None:
    async for message in socket:
        assert isinstance(message, str)
        send_frames(socket, [message.encode()] * 3, text=True)


@pytest.fixture
def opened() -> Opened:
    @asynccontextmanager
    async def opened(*, deflate: bool, compression: str | None) -> AsyncIterator[ClientConnection]:
        settings = GatewaySettings(port=0, deflate=deflate)
        async with await serve_sockets(_echo, settings) as server:
            url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
            async with connect(url, compression=compression, proxy=None) as socket:
                yield socket

    return opened


@pytest.mark.parametrize(
    ("deflate", "compression", "agreed"), [(True, "deflate", 1), (True, None, 0), (False, "deflate", 0)]
)
async def test_frames_are_compressed_if_both_sides_agree(
    opened: Opened, deflate: bool, compression: str | None, agreed: int
) -> None:
    async with opened(deflate=deflate, compression=compression) as socket:
        assert len(socket.protocol.extensions) == agreed
        await socket.send(FRAME.decode())
        assert [await socket.recv() for _ in range(3)] == [FRAME.decode()] * 3


async def test_a_frame_that_unpacks_to_more_than_one_may_have_closes_with_1009(opened: Opened) -> None:
    async with opened(deflate=True, compression="deflate") as socket:
        await socket.send("0" * 10_000_000)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1009
