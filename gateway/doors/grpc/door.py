"""The gRPC server of a gateway's process: its services, its limits, its end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from grpc import aio
from grpc.aio import ServicerContext
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from gateway.doors.grpc.calls import Call
from gateway.doors.grpc.chat import Chatting
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.doors.grpc.respond import Responding
from gateway.exchange.exchanges import Exchanges
from shared.settings.gateway import GatewaySettings
from shared.sockets.listening import ListenAddress, host_port

_SERVICE: Final = v1.DESCRIPTOR.services_by_name["Replyline"].full_name
_REFLECTION: Final = "grpc.reflection.v1.ServerReflection"
# A client may ping so often, and one that says every 10 s may be early; one that pings more is told to go away.
_MIN_PING_MS: Final = 9_000
_PING_TIMEOUT_MS: Final = 20_000
_LAST_WORDS_S: Final = 0.5
_WATCH_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class GrpcDoor:
    """`ready`: whether new calls may come."""

    exchanges: Exchanges
    settings: GatewaySettings
    ready: Callable[[], bool]
    _chatting: Chatting = field(init=False)
    _server: aio.Server = field(init=False)
    _health: health.aio.HealthServicer = field(init=False)
    _stopping: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self._chatting = Chatting(exchanges=self.exchanges, settings=self.settings)

    async def listen(self) -> int:
        """Listen; return the port. Raises `ListenError`."""
        settings = self.settings
        self._server = aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_concurrent_streams", settings.max_connections),
                ("grpc.max_allowed_incoming_connections", settings.max_connections),
                ("grpc.server_handshake_timeout_ms", round(settings.hello_timeout_s * 1_000)),
                ("grpc.keepalive_time_ms", round(settings.heartbeat_s * 1_000)),
                ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_MS),
            ],
            maximum_concurrent_rpcs=settings.max_connections,
        )
        self._server.add_generic_rpc_handlers((self._own_service(), *_reflections()))
        self._health = health.aio.HealthServicer()
        await self._health.set(_SERVICE, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        address = ListenAddress.of_settings("gateway", settings, "grpc_port")
        address.listen().close()  # gRPC gives no reason for a failure
        with address.explained():
            try:
                port = self._server.add_insecure_port(host_port(address.host, address.port))
            except RuntimeError as error:
                raise OSError(str(error)) from None
        await self._server.start()
        return int(port)

    def _own_service(self) -> grpc.GenericRpcHandler:
        """Return the service's methods. They take bytes: what cannot be read is refused as any other mistake."""
        responding = Responding(self.exchanges)

        async def respond(data: bytes, context: ServicerContext) -> None:
            await self._carry(context, lambda call: responding.respond(call, data))

        async def resume(data: bytes, context: ServicerContext) -> None:
            await self._carry(context, lambda call: responding.resume(call, data))

        async def chat(_: object, context: ServicerContext) -> None:
            await self._carry(context, self._chatting.chat)

        return grpc.method_handlers_generic_handler(
            _SERVICE,
            {
                "Respond": grpc.unary_stream_rpc_method_handler(respond),
                "Resume": grpc.unary_stream_rpc_method_handler(resume),
                "Chat": grpc.stream_stream_rpc_method_handler(chat),
            },
        )

    async def _carry(self, context: ServicerContext, work: Callable[[Call], Awaitable[None]]) -> None:
        promised_ms = self.exchanges.session_limits.announced.deadline_ms
        call = Call(context=context, settings=self.settings, promised_ms=promised_ms)
        await call.carry(work(call))

    async def watch(self) -> None:
        """Tell health checks whether new calls may come."""
        while True:
            status = "SERVING" if self.ready() else "NOT_SERVING"
            for service in ("", _SERVICE):
                await self._health.set(service, health_pb2.HealthCheckResponse.ServingStatus.Value(status))
            await asyncio.sleep(_WATCH_S)

    async def drain(self) -> None:
        """Say that nobody new may come, then take no new call. Those that are begun go on."""
        await self._health.enter_graceful_shutdown()
        self._chatting.announce_shutdown()
        self._stopping = asyncio.create_task(self._server.stop(self.settings.drain_s))

    async def close(self) -> None:
        """End every call, once it has had its last words."""
        self._chatting.close_all()
        await self._server.stop(_LAST_WORDS_S)
        if self._stopping is not None:
            await self._stopping


def _reflections() -> list[grpc.GenericRpcHandler]:
    """Return reflection by both its names: the messages are the same."""
    servicer: Any = reflection.aio.ReflectionServicer((_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler})
        for name in (_REFLECTION, reflection.SERVICE_NAME)
    ]
