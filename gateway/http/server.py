"""The HTTP server of a gateway process: the doors' routes and WebSockets, on one port."""

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.paths import plain_path
from gateway.frontends.sockets import client_bounds
from gateway.http.protocol import BoundedHttp, BoundedSocket
from shared.settings.gateway import GatewaySettings
from shared.sockets.bounded import bounded
from shared.sockets.listening import BACKLOG
from shared.sockets.open_sockets import REFUSALS, OpenSockets


@dataclass(slots=True, kw_only=True)
class HttpServer:
    """The server. `sockets` counts its connections."""

    app: ASGIApp
    settings: GatewaySettings
    sockets: OpenSockets = field(default_factory=lambda: OpenSockets(spare=REFUSALS))
    _server: "_Server | None" = None

    async def serve(self, listening: socket.socket) -> None:
        """Serve until `stop` is called, and then until the last answer is written or the drain's time limit is
        reached."""
        settings = self.settings
        config = uvicorn.Config(
            self._serve_plain,
            http=bounded(partial(BoundedHttp, trusted=settings.trusted_proxies), client_bounds(settings, self.sockets)),
            ws=BoundedSocket,
            ws_max_size=settings.max_message_bytes,
            ws_ping_interval=settings.heartbeat_s,
            ws_ping_timeout=settings.heartbeat_s,
            ws_per_message_deflate=settings.deflate,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=math.ceil(settings.hello_timeout_s),
            timeout_graceful_shutdown=max(1, round(settings.drain_s)),
        )
        self._server = _Server(config)
        await self._server.serve([listening])

    async def _serve_plain(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app({**scope, "path": plain_path(scope["path"])}, receive, send)

    def stop(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.should_exit = True


class _Server(uvicorn.Server):
    """A server in a process that handles its signals itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
