"""Echo each message over sockets served like the gateway's: `echo_gateway.py PORT`, until a signal.

The one difference from the gateway's defaults is `max_message_bytes`: Autobahn's largest message is 16 MiB.
"""

import asyncio
import sys

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from gateway.frontends.sockets import send_frames, serve_sockets
from shared.process.lifetime import run_until_signal
from shared.settings.gateway import GatewaySettings

LARGEST_BYTES = 16 * 1024 * 1024


async def echo(socket: ServerConnection) -> None:
    try:
        async for data in socket:
            text = isinstance(data, str)
            if socket.protocol.state is State.OPEN:
                send_frames(socket, [data.encode() if isinstance(data, str) else data], text=text)
    except ConnectionClosed:
        pass  # many cases end like this


async def serve(stop: asyncio.Event) -> None:
    server = await serve_sockets(echo, GatewaySettings(port=int(sys.argv[1]), max_message_bytes=LARGEST_BYTES))
    await stop.wait()
    server.close()
    await server.wait_closed()


if __name__ == "__main__":
    sys.exit(run_until_signal(serve))
