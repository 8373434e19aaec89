"""gRPC's standard services for health checks and reflection. Their calls have a separate limit, so that a full gateway
still answers a health check."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from grpc.aio import ServicerContext
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from gateway.doors.grpc.calls import Call
from gateway.doors.grpc.messages import read
from shared.sockets.open_sockets import OpenSockets

_REFLECTION: Final = "grpc.reflection.v1.ServerReflection"
_MOST_CALLS: Final = 256
_ADDRESS_PART: Final = 16

Carry = Callable[[ServicerContext, OpenSockets, Callable[[Call], Awaitable[None]]], Awaitable[None]]


@dataclass(slots=True)
class Probes:
    """The health and reflection services. `carry` counts a call and runs it. One address may use a sixteenth of the
    calls."""

    service: str
    carry: Carry
    servicer: health.aio.HealthServicer = field(default_factory=health.aio.HealthServicer)
    _calls: OpenSockets = field(default_factory=lambda: OpenSockets(most=_MOST_CALLS, address_part=_ADDRESS_PART))

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the services. Reflection has two names, because its messages are the same in both versions."""
        checks = {"Check": self._handler(self._check), "Watch": self._handler(self._watch)}
        reflects = {"ServerReflectionInfo": self._handler(self._reflect, reflection_pb2.ServerReflectionRequest)}
        services = {health.SERVICE_NAME: checks, _REFLECTION: reflects, reflection.SERVICE_NAME: reflects}
        return [grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()]

    def _handler(self, work: Callable[[Any, Call], Awaitable[None]], request: Any = None) -> grpc.RpcMethodHandler:
        async def handle(requests: Any, context: ServicerContext) -> None:
            await self.carry(context, self._calls, lambda call: work(requests, call))

        return grpc.stream_stream_rpc_method_handler(
            handle,
            request_deserializer=None if request is None else request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _check(self, _: Any, call: Call) -> None:
        await call.context.write(await self.servicer.Check(await self._request(call), call.context))

    async def _watch(self, _: Any, call: Call) -> None:
        await self.servicer.Watch(await self._request(call), call.context)

    @staticmethod
    async def _request(call: Call) -> Any:
        return health_pb2.HealthCheckRequest(**read(await call.request(), health_pb2.HealthCheckRequest))

    async def _reflect(self, requests: Any, call: Call) -> None:
        names = (self.service, health.SERVICE_NAME, reflection.SERVICE_NAME)
        servicer: Any = reflection.aio.ReflectionServicer(names)
        async for response in servicer.ServerReflectionInfo(requests, call.context):
            await call.context.write(response)
