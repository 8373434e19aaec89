"""A client that repeats one request as often as it can and ignores refusals, with its own address and token."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Literal

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.system import Service

Flood = Literal["delete", "feedback", "handoff", "resume", "token"]
FLOODS: Final[tuple[Flood, ...]] = ("delete", "feedback", "handoff", "resume", "token")

# Over a few open connections, or each over a new one, which costs the machine more than the message.
OFTEN_PER_S: Final = 400.0
ANEW_PER_S: Final = 50.0
_CONNECTIONS: Final = 4
_AT_ONCE: Final = 64
_SAYS: Final[dict[Flood, dict[str, Any]]] = {
    "delete": {"type": "session.delete"},
    "feedback": {"type": "feedback", "response_id": "resp_none", "rating": "up"},
    "token": {"type": "session.refresh", "token": "e30.e30.AAAA"},
}


class Nuisance:
    """`heard` counts the received messages, errors by their code."""

    def __init__(self, gateway: Service, flood: Flood, *, address: str, token: Callable[[], str]) -> None:
        self._gateway = gateway
        self._flood = flood
        self._address = address
        self._token = token
        self._names = itertools.count()
        self._busy: set[asyncio.Task[None]] = set()
        self.heard: Counter[str] = Counter()
        self.sent = 0

    async def run(self, seconds: float, rng: random.Random) -> None:
        """Open loop: send each at its own time, answered or not."""
        loop = asyncio.get_running_loop()
        until, due = loop.time() + seconds, loop.time()
        anew = self._flood not in _SAYS
        async with AsyncExitStack() as sockets:
            standing = [] if anew else [await self._opened(sockets) for _ in range(_CONNECTIONS)]
            while (due := due + rng.expovariate(ANEW_PER_S if anew else OFTEN_PER_S)) < until:
                await asyncio.sleep(max(0.0, due - loop.time()))
                if len(self._busy) < _AT_ONCE:
                    self._start(self._anew() if anew else self._say(standing[self.sent % _CONNECTIONS]))
                    self.sent += 1
            await asyncio.gather(*self._busy)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _opened(self, sockets: AsyncExitStack) -> ClientConnection:
        """Open a session; count what it receives."""
        socket = await sockets.enter_async_context(self._connect())
        await socket.send(json.dumps({"type": "session.start", "token": self._token()}))
        await socket.recv()
        reading = asyncio.create_task(self._listen(socket))
        sockets.callback(reading.cancel)
        return socket

    def _connect(self) -> Any:
        here = (self._address, 0)
        return connect(
            self._gateway.ws, local_addr=here, subprotocols=[Subprotocol("chat.v1.json")], proxy=None, compression=None
        )

    async def _listen(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for data in socket:
                self._count(json.loads(data))

    def _count(self, event: dict[str, Any]) -> None:
        self.heard[event["error"]["code"] if event["type"] == "error" else event["type"]] += 1

    async def _say(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            await socket.send(json.dumps(_SAYS[self._flood]))

    async def _anew(self) -> None:
        """Open a connection for one request."""
        name = f"flood-{next(self._names)}"
        start: dict[str, Any] = {"type": "session.start", "token": self._token()}
        if self._flood == "resume":
            start |= {"session_id": name, "resume": {"cursor": "A" * 400}}
        with suppress(ConnectionClosed, OSError):
            async with self._connect() as socket:
                await socket.send(json.dumps(start))
                self._count(json.loads(await socket.recv()))
                if self._flood == "handoff":
                    await socket.send(json.dumps({"type": "handoff.request"}))
                    self._count(json.loads(await socket.recv()))
