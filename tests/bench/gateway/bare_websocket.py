"""The gateway bench's denominator: a bare websockets server that makes the same paced deltas itself.

`python -m tests.bench.gateway.bare_websocket PORT`: uvloop, no compression, a task a connection. It speaks as much of
the protocol as the bench's client needs.
"""

import asyncio
import time
from typing import Final

import typer
import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from ops.lab.client.dialogue import SUBPROTOCOL
from ops.stack.system import READY
from shared.wire.codec import GATEWAY_CODECS, msgpack_encode
from shared.wire.messages import Limits, ResponseCreate, ResponseCreated, ResponseDelta, ResponseDone, SessionCreated
from shared.wire.outcome import Response, Timings, Usage
from tests.bench.gateway.paced import DELTAS, INTERVAL_MS, delta_text

_LIMITS = Limits(
    max_message_bytes=65_536,
    max_input_tokens=1_024,
    max_output_tokens=512,
    max_inflight=4,
    messages_per_minute=1_000_000,
    first_token_ms=60_000,
    deadline_ms=60_000,
)


HELLO: Final = msgpack_encode(
    SessionCreated(
        session_id="bare", connection_id="bare", recovered=False, replayed=0, limits=_LIMITS, heartbeat_s=3_600
    )
)


async def run(port: int) -> None:
    decode = GATEWAY_CODECS[SUBPROTOCOL].decode

    async def handle(socket: ServerConnection) -> None:
        try:
            async for frame in socket:
                message = decode(frame)
                if isinstance(message, ResponseCreate):
                    await _stream(socket, message.event_id)
                else:
                    await socket.send(HELLO)
        except ConnectionClosed:
            return

    async with serve(
        handle, "127.0.0.1", port, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, ping_interval=None
    ) as server:
        print(READY, flush=True)
        await server.serve_forever()


async def _stream(socket: ServerConnection, event_id: str) -> None:
    await socket.send(msgpack_encode(ResponseCreated(response_id=event_id, event_id=event_id, bucket="short")))
    start_s = time.monotonic()
    parts: list[str] = []
    for seq in range(DELTAS):
        due_s = start_s + seq * INTERVAL_MS / 1_000
        wait_s = due_s - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        text = delta_text(due_s)
        delta = ResponseDelta(response_id=event_id, seq=seq, offset=seq * len(text), delta=text, cursor="")
        await socket.send(msgpack_encode(delta))
        parts.append(text)
    response = Response(
        id=event_id,
        status="completed",
        reason="stop",
        source="model",
        output_text="".join(parts),
        usage=Usage(output_tokens=DELTAS),
        timings=Timings(),
    )
    await socket.send(msgpack_encode(ResponseDone(response=response, cursor="")))


def main(port: int) -> None:
    uvloop.run(run(port))


if __name__ == "__main__":
    typer.run(main)
