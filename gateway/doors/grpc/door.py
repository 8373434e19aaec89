"""The gRPC server of a gateway process: the services that it offers, its limits, and its shutdown."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import grpc
from grpc import aio
from grpc.aio import ServicerContext
from grpc_health.v1 import health_pb2

from gateway.doors.grpc.calls import Call
from gateway.doors.grpc.chat import Chatting
from gateway.doors.grpc.connections import GrpcConnections, open_files
from gateway.doors.grpc.probes import Probes
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.doors.grpc.respond import Responding
from gateway.exchange.exchanges import Exchanges
from shared.settings.gateway import GatewaySettings
from shared.sockets.listening import ListenAddress, host_port
from shared.sockets.open_sockets import REFUSALS, OpenSockets

_SERVICE: Final = v1.DESCRIPTOR.services_by_name["Replyline"].full_name
# Clients may ping this often, and one that pings every 10 s may be early. The server disconnects clients that ping more
# often.
_MIN_PING_MS: Final = 9_000
_PING_TIMEOUT_MS: Final = 20_000
# A client's channel reconnects with its next call.
_IDLE_MS: Final = 60_000
_LAST_WORDS_S: Final = 0.5
_WATCH_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class GrpcDoor:
    """The gRPC door.

    Attributes:
        ready: returns whether new calls are accepted
        sockets: counts the connections
        calls: counts the calls, by address
    """

    exchanges: Exchanges
    settings: GatewaySettings
    ready: Callable[[], bool]
    sockets: OpenSockets = field(default_factory=lambda: OpenSockets(spare=REFUSALS))
    calls: OpenSockets = field(default_factory=OpenSockets)
    _chatting: Chatting = field(init=False)
    _server: aio.Server = field(init=False)
    _probes: Probes = field(init=False)
    _connections: GrpcConnections = field(init=False)
    _stopping: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self._chatting = Chatting(exchanges=self.exchanges, settings=self.settings)
        self._probes = Probes(_SERVICE, self._carry)

    async def listen(self) -> int:
        """Listen, and return the port. Raises `ListenError`."""
        settings = self.settings
        self._server = aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_concurrent_streams", settings.max_connections),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.server_handshake_timeout_ms", round(settings.hello_timeout_s * 1_000)),
                ("grpc.keepalive_time_ms", round(settings.heartbeat_s * 1_000)),
                ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_MS),
            ]
        )
        self._server.add_generic_rpc_handlers((self._own_service(), *self._probes.handlers()))
        await self._probes.servicer.set(_SERVICE, health_pb2.HealthCheckResponse.SERVING)
        address = ListenAddress.of_settings("gateway", settings, "grpc_port")
        address.listen().close()  # gRPC gives no reason for a failure, so try the address first
        with address.explained():
            try:
                port = self._server.add_insecure_port(host_port(address.host, address.port))
            except RuntimeError as error:
                raise OSError(str(error)) from None
        await self._server.start()
        self._connections = GrpcConnections(self.sockets, int(port))
        return int(port)

    def _own_service(self) -> grpc.GenericRpcHandler:
        """Return the service's methods. Each reads its messages itself, as bytes, so that a missing or malformed
        message is refused like any other mistake."""
        responding = Responding(self.exchanges)
        works = {"Respond": responding.respond, "Resume": responding.resume, "Chat": self._chatting.chat}
        return grpc.method_handlers_generic_handler(
            _SERVICE, {name: self._method(work) for name, work in works.items()}
        )

    def _method(self, work: Callable[[Call], Awaitable[None]]) -> grpc.RpcMethodHandler:
        async def handle(_: object, context: ServicerContext) -> None:
            await self._carry(context, self.calls, work)

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _carry(
        self, context: ServicerContext, calls: OpenSockets, work: Callable[[Call], Awaitable[None]]
    ) -> None:
        promised_ms = self.exchanges.session_limits.announced.deadline_ms
        call = Call(context=context, settings=self.settings, promised_ms=promised_ms)

        async def counted() -> None:
            calls.add(call, call.asker.address)
            try:
                await work(call)
            finally:
                calls.remove(call)

        await call.carry(counted())

    async def watch(self) -> None:
        """Once a second, publish whether new calls are accepted, and count the connections."""
        while True:
            self._connections.update(await asyncio.to_thread(open_files))
            status = "SERVING" if self.ready() else "NOT_SERVING"
            for service in ("", _SERVICE):
                await self._probes.servicer.set(service, health_pb2.HealthCheckResponse.ServingStatus.Value(status))
            await asyncio.sleep(_WATCH_S)

    async def drain(self) -> None:
        """Report the shutdown to health checks, then accept no new calls. Calls in progress continue."""
        await self._probes.servicer.enter_graceful_shutdown()
        self._chatting.announce_shutdown()
        self._stopping = asyncio.create_task(self._server.stop(self.settings.drain_s))
        # Lets it begin: the next call is UNAVAILABLE, which clients try elsewhere. A call that is under way before its
        # client has read the shutdown may get CANCELLED from gRPC's core.
        await asyncio.sleep(0)

    async def close(self) -> None:
        """End every call after its last messages."""
        self._chatting.close_all()
        await self._server.stop(_LAST_WORDS_S)
        if self._stopping is not None:
            await self._stopping
