"""The gRPC server: authentication, limits, shutdown, and generated code that matches its .proto."""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import run
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from gateway.doors.grpc import door
from gateway.doors.grpc.metadata import asker_of, status_of, trailers_of
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from shared.errors import ErrorKind
from shared.settings.gateway import GatewaySettings
from shared.wire.outcome import ErrorDetail
from tests.support import tokens
from tests.support.fakes.gateway_services import FakeQuotas
from tests.support.fakes.gateways import Edge, until
from tests.support.fakes.grpc_doors import Sent, all_of, kinds, refused, said, serving
from tests.support.fakes.openai_doors import answer

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
ROOT = Path(__file__).parents[5]
PROTO = "replyline/v1/replyline.proto"


def of(subject: str, **claims: Any) -> Sent:
    token = tokens.token(sub=subject, **{"exp": time.time() + 60} | claims)
    return (("authorization", f"Bearer {token}"),)


@pytest.mark.parametrize(("metadata", "reason"), [((), "UNAUTHORIZED"), (of("alice", exp=1), "TOKEN_EXPIRED")])
async def test_a_missing_or_bad_token_is_reported(metadata: Sent, reason: str) -> None:
    edge = Edge()
    async with serving(edge, tokens.gate()) as client:
        status, details = await refused(client.respond(metadata=metadata))
        chat = client.chat(metadata)
        await chat.write(said(session_start=v1.SessionStart()))
        assert status is (await refused(chat))[0] is grpc.StatusCode.UNAUTHENTICATED
    info = ErrorInfo()
    assert details.details[0].Unpack(info)
    assert info.reason == reason
    assert edge.asked == []


async def test_a_token_gives_the_session_owner_and_its_rights() -> None:
    edge = Edge()
    async with serving(edge, tokens.gate()) as client:
        status, _ = await refused(client.respond(instructions="Rhyme.", metadata=of("alice")))
        assert status is grpc.StatusCode.PERMISSION_DENIED
        call = client.respond(instructions="Rhyme.", metadata=of("alice", instructions=True))
        await until(lambda: edge.asked)
        await answer(edge, "Mat.")
        assert kinds(await all_of(call))[-1] == "response_done"
        chat = client.chat(of("alice"))
        await chat.write(said(session_start=v1.SessionStart(session_id="s")))
        assert (await chat.read()).session_created.expires_at > time.time() * 1_000
        chat.cancel()


async def test_a_client_over_its_rate_is_told_when_to_retry() -> None:
    async with serving(Edge(quotas=FakeQuotas(used_up={"ask"}))) as client:
        status, details = await refused(client.respond())
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    retry = RetryInfo()
    assert details.details[1].Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 9


@pytest.mark.parametrize(
    ("kind", "code", "retryable", "status", "pushback"),
    [
        ("invalid_request_error", "invalid_field", False, "INVALID_ARGUMENT", "-1"),
        ("invalid_request_error", "key_reused", False, "ABORTED", "-1"),
        ("authentication_error", "unauthorized", False, "UNAUTHENTICATED", "-1"),
        ("rate_limit_error", "too_many_inflight", True, "RESOURCE_EXHAUSTED", "1000"),
        ("overloaded_error", "queue_full", True, "UNAVAILABLE", "1000"),
        ("server_error", "internal", True, "UNAVAILABLE", "1000"),
        ("server_error", "internal", False, "INTERNAL", "-1"),
        ("server_error", "nobody_in_time", False, "DEADLINE_EXCEEDED", "-1"),
    ],
)
def test_each_refusal_has_its_status(kind: ErrorKind, code: str, retryable: bool, status: str, pushback: str) -> None:
    error = ErrorDetail(type=kind, code=code, message="why", retryable=retryable)
    trailers: dict[str, Any] = dict(trailers_of(error))
    assert status_of(error).name == status
    assert trailers["grpc-retry-pushback-ms"] == pushback
    assert Status.FromString(trailers["grpc-status-details-bin"]).code == status_of(error).value[0]


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("ipv4:198.51.100.7:50051", "192.0.2.1", "198.51.100.7"),
        ("ipv4:127.0.0.1:50051", "192.0.2.1", "192.0.2.1"),
        ("ipv6:%5B2001:db8::7%5D:50051", "192.0.2.1", "2001:db8::/64"),
        ("unix:/run/door", "192.0.2.1", ""),
    ],
)
def test_a_client_is_charged_by_its_address(peer: str, forwarded: str, address: str) -> None:
    asker = asker_of(
        peer, (("x-forwarded-for", forwarded),), None, trusted=GatewaySettings().trusted_proxies, promised_ms=9
    )
    assert asker.address == address


async def test_a_message_over_the_limit_is_refused() -> None:
    async with serving(Edge(), max_message_bytes=2_048) as client:
        assert (await refused(client.respond("x" * 3_000)))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_client_may_ping_but_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one client that pings too often is disconnected, another with the same rate is still connected."""
    pings = (("grpc.keepalive_time_ms", 1_000), ("grpc.http2.max_pings_without_data", 0))
    readings = []
    async with AsyncExitStack() as doors:
        for least_ms in (50, 9_000):
            monkeypatch.setattr(door, "_MIN_PING_MS", least_ms)
            client = await doors.enter_async_context(serving(Edge(), client_options=pings))
            chat = client.chat()
            await chat.write(said(session_start=v1.SessionStart()))
            await chat.read()
            readings.append(asyncio.ensure_future(chat.read()))
        (gone,), (stays,) = await asyncio.wait(readings, return_when=asyncio.FIRST_COMPLETED)
        assert [gone, stays] == readings[::-1]
        assert isinstance(gone.exception(), aio.AioRpcError)
        stays.cancel()


async def test_a_draining_gateway_announces_it_and_finishes_its_answers() -> None:
    """gRPC's core cancels a call that is under way when the client gets GOAWAY."""
    edge = Edge()
    async with serving(edge) as client:
        stub = health_pb2_grpc.HealthStub(client.channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(service="replyline.v1.Replyline"))
        assert (await watched.read()).status == SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        chat = client.chat()
        await chat.write(said(session_start=v1.SessionStart()))
        await chat.read()
        call = client.respond()
        await until(lambda: edge.asked)
        await client.door.drain()
        assert (await watched.read()).status == NOT_SERVING
        assert (await chat.read()).WhichOneof("message") == "session_closing"
        assert (await refused(client.respond()))[0] in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        await answer(edge, "Here.")
        assert kinds(await all_of(call))[-1] == "response_done"
        await client.door.close()
        assert (await refused(chat))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_gateway_that_accepts_no_clients_is_not_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_WATCH_S", 0.01)
    async with serving(Edge()) as client:
        watching = asyncio.ensure_future(client.door.watch())
        watched = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
        for ready, status in ((True, SERVING), (False, NOT_SERVING), (True, SERVING)):
            client.door.ready = lambda ready=ready: ready
            assert (await watched.read()).status == status
        watching.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_its_services_are_listed(version: str) -> None:
    async with serving(Edge()) as client:
        asked = client.channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )()
        await asked.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="replyline.v1.Replyline"))
        (found,) = (await asked.read()).file_descriptor_response.file_descriptor_proto
        assert FileDescriptorProto.FromString(found).service[0].method[0].name == "Respond"
        asked.cancel()


def test_the_generated_code_is_that_of_the_proto(tmp_path: Path) -> None:
    """To regenerate: cd gateway/doors/grpc && python -m grpc_tools.protoc -I. --python_out=.
    replyline/v1/replyline.proto.
    """
    folder = ROOT / "gateway" / "doors" / "grpc"
    run([sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={tmp_path}", PROTO], check=True)
    generated = PROTO.replace(".proto", "_pb2.py")
    assert (folder / generated).read_text() == (tmp_path / generated).read_text()


@pytest.mark.parametrize(
    ("method", "left"),
    [
        ("grpc.health.v1.Health/Watch", 16),
        ("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", 16),
        ("replyline.v1.Replyline/Respond", 0),
        ("replyline.v1.Replyline/Resume", 0),
    ],
)
async def test_long_calls_without_messages_leave_room_for_others(method: str, left: int) -> None:
    """Health and reflection have their own limit by address; the message of any other call must arrive in time."""
    async with serving(Edge(), hello_timeout_s=0.1) as client:
        begun = client.channel.stream_stream(f"/{method}")
        calls = [begun(metadata=(("x-forwarded-for", "192.0.2.7"),)) for _ in range(40)]
        if method.endswith("Watch"):
            for call in calls:
                await call.write(b"")
        await until(lambda: [call.done() for call in calls].count(False) == left)
        probe = client.channel.unary_unary(
            "/grpc.health.v1.Health/Check", response_deserializer=health_pb2.HealthCheckResponse.FromString
        )
        assert (await probe(b"", metadata=(("x-forwarded-for", "192.0.2.8"),))).status == SERVING
