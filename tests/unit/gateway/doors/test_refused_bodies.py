"""A body that is refused costs its client's address as much as decoding it costs the gateway."""

import itertools
import json
from contextlib import suppress
from typing import Any, cast

import httpx2
import pytest

from gateway.access.charges import Caller, Tariff
from gateway.access.quotas import Quotas
from gateway.frontends import websocket
from shared.errors import ProtocolError
from shared.process.clock import CLOCKS, Clocks
from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.support import tokens
from tests.support.fakes.ai_sdk_doors import ChatPage, FakeCursors
from tests.support.fakes.ai_sdk_doors import door_of as ai_sdk_door
from tests.support.fakes.gateway_services import FakeQuotas
from tests.support.fakes.gateways import Edge, until
from tests.support.fakes.grpc_doors import refused, serving
from tests.support.fakes.openai_doors import chat
from tests.support.fakes.openai_doors import door_of as openai_door
from tests.unit.gateway.frontends.test_websocket_connection import JSON, Socket, connected, frontend

SOUND = chat("How do I return an item?")
UI = {"id": "c", "messages": [{"role": "user", "parts": [{"type": "text", "text": "How do I return an item?"}]}]}
DOORS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "chat completions": (openai_door, "/v1/chat/completions", SOUND),
    "responses": (openai_door, "/v1/responses", {"model": "replyline", "input": "How do I return an item?"}),
    "ai sdk": (lambda edge, gate=None: ai_sdk_door(edge, FakeCursors(), gate), "/chat", UI),
}


BAD = b"[" + b"{}," * 100
ANOTHER_MODEL = {"model": "another"}


@pytest.mark.parametrize(
    ("door", "bad", "status"),
    [
        *((door, BAD, 400) for door in DOORS),
        *(
            (door, json.dumps(DOORS[door][2] | ANOTHER_MODEL).encode(), 404)
            for door in ("chat completions", "responses")
        ),
    ],
)
async def test_after_too_many_refusals_a_body_is_not_decoded(door: str, bad: bytes, status: int) -> None:
    make, path, sound = DOORS[door]
    edge = Edge(kafka_is_away=True, quotas=FakeQuotas(refusals_left=2))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=make(edge).app(), client=("10.0.0.7", 1)), base_url="http://gateway"
    ) as client:
        answers = [await client.post(path, content=each) for each in (json.dumps(sound).encode(), bad, bad, bad)]
    assert [answer.status_code for answer in answers] == [200, status, status, 429]
    assert edge.quotas.refused == [("10.0.0.7", len(bad))] * 2


@pytest.mark.parametrize("door", DOORS)
async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_asked_for(door: str) -> None:
    """A server asks with 100 Continue when its application reads the body."""
    make, path, _ = DOORS[door]
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"gateway"), (b"content-length", b"1000000000"), (b"expect", b"100-continue")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("10.0.0.7", 1), "http_version": "1.1", "scheme": "http", "root_path": ""}
    await make(Edge()).app()(scope, receive, send)
    assert sent[0]["status"] == 413


@pytest.mark.parametrize("door", DOORS)
async def test_a_body_without_a_token_is_not_decoded(door: str) -> None:
    make, path, _ = DOORS[door]
    edge = Edge()
    transport = httpx2.ASGITransport(app=make(edge, tokens.gate()).app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        assert (await client.post(path, content=BAD)).status_code == 401
    assert edge.quotas.refused == []


async def over_ai_sdk_socket(edge: Edge, bad: bytes, times: int) -> None:
    page = ChatPage(ai_sdk_door(edge, FakeCursors()))
    for number in range(times):
        page.send_text(bad.decode().replace("NUMBER", str(number)))
    await until(lambda: page.closed is not None or len(page.told) == times)
    await page.leave()


async def over_websocket(edge: Edge, bad: bytes, times: int) -> None:
    socket = Socket(*[bad.decode()] * times)
    front = frontend(gateway=edge.gateway)
    await front._receive(connected(socket, {}), cast("Any", socket), JSON)


async def over_grpc_respond(edge: Edge, bad: bytes, times: int) -> None:
    async with serving(edge) as client:
        for _ in range(times):
            await refused(client.call("Respond", bad))


async def over_grpc_chat(edge: Edge, bad: bytes, times: int) -> None:
    async with serving(edge) as client:
        call = client.chat()
        for _ in range(times):
            await call.write(bad)
            await call.read()
        call.cancel()


STREAMS: dict[str, tuple[Any, bytes]] = {
    "ai sdk socket": (over_ai_sdk_socket, b'{"type": "send", "requestId": "NUMBER", "id": "c", "messages": 7}'),
    "ai sdk socket, no question": (over_ai_sdk_socket, b'{"type": "send", "requestId": "NUMBER", "id": "c"}'),
    "websocket": (over_websocket, b'{"type": "response.create", "event_id": "e", "input": 1e5' + b" " * 9_000),
    "grpc respond": (over_grpc_respond, b"\xff" * 3_000),
    "grpc chat": (over_grpc_chat, b"\xff" * 3_000),
}


@pytest.mark.parametrize("stream", STREAMS)
async def test_refusals_on_a_stream_are_charged_alike(stream: str) -> None:
    send, bad = STREAMS[stream]
    edge = Edge(kafka_is_away=True, quotas=FakeQuotas(refusals_left=2))
    await send(edge, bad, 4)
    assert {size for _, size in edge.quotas.refused} == {len(bad.replace(b"NUMBER", b"0"))}
    assert len(edge.quotas.refused) == 2


async def test_after_too_many_refusals_a_frame_is_not_decoded_for_its_event_id(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []
    monkeypatch.setattr(websocket, "refuse", lambda _, error, event_id: seen.append((error.code, event_id)))
    edge = Edge(quotas=FakeQuotas(refusals_left=1))
    await over_websocket(edge, b'{"type": "response.create", "event_id": "e", "input": ""}', 2)
    assert seen == [("invalid_field", "e"), ("rate_limited", None)]


def refuse(quotas: Quotas, address: str, num_bytes: int, times: int) -> int:
    """Return how many of these refusals were decoded."""
    decoded = 0
    for _ in range(times):
        with suppress(ProtocolError), quotas.charging_decoding(address, num_bytes):
            decoded += 1
            raise ProtocolError("bad_json", "no")
    return decoded


TARIFF = Tariff(QuotaSettings(address_per_minute=100), HandoffSettings())


@pytest.fixture
def quotas() -> Quotas:
    return Quotas(TARIFF, RedisSettings())


@pytest.mark.parametrize(("num_bytes", "decoded"), [(10, 100), (65_536, 4)])
def test_a_long_body_costs_more_than_a_short_one(quotas: Quotas, num_bytes: int, decoded: int) -> None:
    assert refuse(quotas, "a", num_bytes, 150) == decoded
    assert refuse(quotas, "b", num_bytes, 1) == 1


@pytest.mark.parametrize(("cpu_ms", "decoded", "a_minute_later"), [(4.5, 300, 300), (30.5, 4, 3)])
def test_what_takes_long_to_decode_costs_its_time(cpu_ms: float, decoded: int, a_minute_later: int) -> None:
    """Time beyond the limit is paid for in the next minute."""
    now_s, cpu_s = 1_000.0, itertools.count(0, cpu_ms / 1_000)
    CLOCKS.set(Clocks(lambda: now_s, lambda: now_s, cpu_s=lambda: next(cpu_s)))
    quotas = Quotas(TARIFF, RedisSettings())

    def count() -> int:
        done = 0
        for _ in range(300):
            with suppress(ProtocolError), quotas.charging_decoding("a", 65_536):
                done += 1
        return done

    assert count() == decoded
    now_s += 60
    assert count() == a_minute_later


def test_what_is_understood_costs_nothing_and_refusals_cost_no_questions(quotas: Quotas) -> None:
    for _ in range(300):
        with quotas.charging_decoding("a", 65_536):
            pass
    assert refuse(quotas, "a", 65_536, 10) == 4
    quotas.charge_here("ask", Caller(SessionKey("demo", "s"), address="a"))
