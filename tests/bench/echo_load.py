"""An open loop of frames that come back as they are: the bare prototype's load."""

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Final

from ops.client.dialogue import SUBPROTOCOL
from ops.client.wire import Wire
from ops.measure.pacer import Pacer

_NUMBER: Final = struct.Struct(">I")
_START_S: Final = 0.05
_PATIENCE_S: Final = 10.0


async def echo_latencies_ms(url: str, times: Sequence[float], *, connections: int, payload: bytes) -> list[float]:
    """Scheduled send to the frame's return, of each that came back; in the order of return."""
    latencies: list[float] = []
    start_s = time.monotonic() + _START_S
    due_s = [start_s + offset for offset in times]
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_frame(frame: bytes, now: float) -> None:
        latencies.append((now - due_s[_NUMBER.unpack_from(frame)[0]]) * 1_000)
        if len(latencies) == len(due_s) and not finished.done():
            finished.set_result(None)

    wires = [
        await Wire.connect(url, subprotocol=SUBPROTOCOL, on_frame=on_frame, on_lost=lambda _: None)
        for _ in range(connections)
    ]
    start_s = time.monotonic() + _START_S
    due_s[:] = [start_s + offset for offset in times]
    pacer = Pacer(due_s, lambda index: wires[index % connections].send(_NUMBER.pack(index) + payload))
    try:
        async with asyncio.timeout(times[-1] + _PATIENCE_S):
            await finished
    except TimeoutError:
        pass  # what did not come back is missing in the count
    finally:
        pacer.close()
        for wire in wires:
            wire.close()
    return latencies
