"""The gRPC door of a gateway without its services, and a client of it over a socket."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc.status_pb2 import Status
from grpc import aio

from gateway.access.identity import TokenGate
from gateway.doors.grpc.door import GrpcDoor
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import http_of

Sent = tuple[tuple[str, str], ...]
Options = tuple[tuple[str, int], ...]


@dataclass
class GrpcClient:
    """A client that makes calls on a channel. Requests are messages, or raw bytes. A door in another
    process has no `door`."""

    channel: aio.Channel
    door: Any = None

    def respond(
        self, text: str = "Where is it?", *, metadata: Sent = (), timeout: float | None = None, **fields: Any
    ) -> Any:
        return self.call("Respond", v1.RespondRequest(input=text, **fields), metadata, timeout)

    def resume(self, session_id: str, cursor: str) -> Any:
        return self.call("Resume", v1.ResumeRequest(session_id=session_id, cursor=cursor))

    def call(self, method: str, request: Any, metadata: Sent = (), timeout: float | None = None) -> Any:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        made = self.channel.unary_stream(
            f"/replyline.v1.Replyline/{method}", response_deserializer=v1.ServerMessage.FromString
        )
        return made(data, metadata=metadata, timeout=timeout)

    def chat(self, metadata: Sent = ()) -> Any:
        made = self.channel.stream_stream(
            "/replyline.v1.Replyline/Chat",
            request_serializer=lambda each: each if isinstance(each, bytes) else each.SerializeToString(),
            response_deserializer=v1.ServerMessage.FromString,
        )
        return made(metadata=metadata)


def said(**message: Any) -> Any:
    return v1.ClientMessage(**message)


def kinds(messages: Iterable[Any]) -> list[str]:
    return [message.WhichOneof("message") for message in messages]


def text_of(messages: Iterable[Any]) -> str:
    return "".join(message.response_output_text_delta.delta for message in messages)


async def all_of(call: Any) -> list[Any]:
    messages = []
    while (message := await call.read()) is not aio.EOF:
        messages.append(message)
    return messages


async def refused(call: Any) -> tuple[grpc.StatusCode, Status]:
    """Return the status of a call that is refused, and its details."""
    try:
        await all_of(call)
    except aio.AioRpcError as error:
        trailers: dict[str, Any] = dict(error.trailing_metadata())
        return error.code(), Status.FromString(trailers.get("grpc-status-details-bin", b""))
    raise AssertionError("it was answered")


@asynccontextmanager
async def serving(
    edge: Edge, gate: TokenGate | None = None, client_options: Options = (), **settings: Any
) -> AsyncIterator[GrpcClient]:
    http = http_of(edge, gate, **settings)
    door = GrpcDoor(exchanges=http.exchanges, settings=http.settings, ready=lambda: True)
    port = await door.listen()
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=client_options) as channel:
            yield GrpcClient(channel, door)
    finally:
        await door.close()
        await http.exchanges.stop()
