"""The doors of a gateway: WebSocket, HTTP and gRPC. Every port except the first is optional."""

import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from websockets.asyncio.server import Server

from gateway.access.identity import TokenGate
from gateway.destination.memory_watch import MemoryWatch
from gateway.doors.ai_sdk.chats import Chats
from gateway.doors.ai_sdk.door import PREFIX as AI_SDK
from gateway.doors.ai_sdk.door import AiSdkDoor
from gateway.doors.chatwoot.door import PREFIX as CHATWOOT
from gateway.doors.chatwoot.door import ChatwootDoor
from gateway.doors.chatwoot.poster import ChatwootApi, ChatwootPoster
from gateway.doors.desk.door import DESK, DeskDoor, desk_page
from gateway.doors.edge.door import EDGE, EdgeDoor
from gateway.doors.openai.door import OpenAiDoor
from gateway.exchange.exchanges import Exchanges
from gateway.frontends.static import StaticFiles
from gateway.frontends.websocket import WebSocketFrontend
from gateway.http.requests import HttpRequests
from gateway.http.server import HttpServer
from gateway.outbound.outbound import Outbound
from gateway.serving.erasing import Erasing
from gateway.serving.gateway import Gateway
from gateway.serving.talking import Talking
from gateway.session.session_limits import session_limits
from shared.conversation.history import History
from shared.conversation.session_value import SessionValue
from shared.faq.live import LiveFaq
from shared.kafka import Producer
from shared.process.tasks import Tasks
from shared.settings import Settings
from shared.settings.gateway import GatewaySettings
from shared.sockets.listening import ListenAddress
from shared.sockets.open_sockets import OpenSockets
from shared.telemetry.status import Readiness

if TYPE_CHECKING:
    from gateway.doors.grpc.door import GrpcDoor


@dataclass(kw_only=True)
class Doors:
    """Builds and runs the doors.

    Attributes:
        gate: verifies tokens; None if clients need no token
        producer: the producer for hand-offs
        running: the cursors of running answers
        sockets: counts the connections of all doors
    """

    settings: Settings
    gate: TokenGate | None
    gateway: Gateway
    faq: LiveFaq
    history: History
    erasing: Erasing
    talking: Talking
    memory: MemoryWatch
    producer: Producer
    running: SessionValue
    outbound: Outbound
    readiness: Readiness
    sockets: OpenSockets
    _frontend: WebSocketFrontend = field(init=False)
    _exchanges: Exchanges = field(init=False)
    _chats: Chats = field(init=False)
    _http: HttpServer = field(init=False)
    _grpc: "GrpcDoor | None" = field(init=False)
    _http_socket: socket.socket | None = None

    def __post_init__(self) -> None:
        gateway = self.settings.gateway
        self._frontend = WebSocketFrontend(
            gateway=self.gateway,
            settings=gateway,
            session_limits=session_limits(self.settings),
            tenant=self.settings.tenant,
            gate=self.gate,
            memory=self.memory,
            files=StaticFiles(),
            sockets=self.sockets,
        )
        self._exchanges = self._make_exchanges(self.gate)
        self._chats = Chats(exchanges=self._exchanges, cursors=self.running)
        self._http = self._make_http(gateway)
        self._grpc = self._make_grpc() if gateway.grpc_port else None

    def _make_exchanges(self, gate: TokenGate | None) -> Exchanges:
        return Exchanges(
            gateway=self.gateway,
            allowed_origins=self.settings.gateway.allowed_origins,
            session_limits=replace(session_limits(self.settings), heartbeat_ms=0),
            tenant=self.settings.tenant,
            gate=gate,
            memory=self.memory,
            history=self.history,
        )

    def _make_http(self, settings: GatewaySettings) -> HttpServer:
        """Return the server of the HTTP doors. The OpenAI door answers all paths that belong to no other door."""
        http = HttpRequests(exchanges=self._exchanges, settings=settings)
        openai = OpenAiDoor(http=http, models=settings.openai_models)
        ai_sdk = AiSdkDoor(http=http, chats=self._chats)
        edge = EdgeDoor(
            http=http,
            signed=self.settings.edge.signed_faq,
            faq=self.faq,
            history=self.history,
            erasing=self.erasing,
        )
        desk = DeskDoor(http=http, talking=self.talking, history=self.history, tenant=self.settings.tenant)
        mounted = [Mount(AI_SDK, ai_sdk.app()), Mount(EDGE, edge.app()), Mount(DESK, desk.app())]
        doors = [Route(DESK, desk_page), *mounted, *self._make_chatwoot(), Mount("/", openai.app())]
        return HttpServer(app=Starlette(routes=doors), settings=settings, sockets=self.sockets)

    def _make_grpc(self) -> "GrpcDoor":
        """Return the gRPC door. Its library is loaded only if the door is used."""
        from gateway.doors.grpc.door import GrpcDoor

        settings = self.settings.gateway
        calls = OpenSockets(
            most=settings.max_connections, quotas=self.settings.quotas, proxies=settings.trusted_proxies
        )
        ready = self.readiness
        return GrpcDoor(
            exchanges=self._exchanges,
            settings=settings,
            ready=lambda: ready.takes_traffic,
            sockets=self.sockets,
            calls=calls,
        )

    def _make_chatwoot(self) -> list[Mount]:
        """Return Chatwoot's door if it is configured. It checks a signature instead of a token."""
        chatwoot, topic = self.settings.chatwoot, self.settings.kafka.topics.posts
        if not chatwoot.url:
            return []
        exchanges = self._make_exchanges(None)
        api = ChatwootApi(chatwoot.url, self.outbound.calls({"api_access_token": chatwoot.token()}))
        self.outbound.add("chatwoot", topic, ChatwootPoster(exchanges=exchanges, api=api).post)
        door = ChatwootDoor(
            http=HttpRequests(exchanges=exchanges, settings=self.settings.gateway),
            producer=self.producer,
            topic=topic,
            key=chatwoot.key(),
        )
        return [Mount(CHATWOOT, door.app())]

    async def listen(self, closing: AsyncExitStack) -> Server:
        """Listen on the ports for WebSockets and HTTP.

        Args:
            closing: closes both listeners

        Returns:
            The WebSocket server.

        Raises:
            ListenError: a port cannot be bound
        """
        server = await self._frontend.listen()
        closing.push_async_callback(server.wait_closed)
        closing.callback(server.close)
        if self.settings.gateway.http_port:
            address = ListenAddress.of_settings("gateway", self.settings.gateway, "http_port")
            self._http_socket = closing.enter_context(address.listen())
        return server

    async def listen_grpc(self, tasks: Tasks, closing: AsyncExitStack) -> None:
        """Open the gRPC door if it has a port. Raises `ListenError`."""
        if self._grpc is not None:
            await self._grpc.listen()
            closing.push_async_callback(self._grpc.close)
            tasks.start(self._grpc.watch(), "grpc")

    def start(self, tasks: Tasks) -> None:
        """Serve the HTTP doors if there are any, and close WebSockets that exceed their limits."""
        if self._http_socket is not None:
            tasks.start(self._http.serve(self._http_socket), "http")
        tasks.start(self._frontend.sweep(), "sweep")
        tasks.start(self._frontend.flush_slow(), "flush_slow")

    async def leave(self) -> None:
        """Accept no new clients, and announce the shutdown to connected ones."""
        self._http.stop()
        self.talking.log.leave()
        self._frontend.announce_shutdown()
        if self._grpc is not None:
            await self._grpc.drain()

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._exchanges.stop)
            closing.push_async_callback(self._chats.close)
            closing.push_async_callback(self._frontend.close_all)
