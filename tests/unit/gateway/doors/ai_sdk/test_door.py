"""`useChat` over HTTP: streamed, resumed at another gateway, stopped, erased."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from shared.wire.messages import Said
from tests.support.fakes.ai_sdk_doors import FakeCursors, chat, client_of, door_of, message, parts_of, text_of
from tests.support.fakes.gateways import Edge, delta, until
from tests.support.fakes.openai_doors import answer

STREAM = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"]


@pytest.fixture
def edge() -> Edge:
    return Edge()


@pytest.fixture
def cursors() -> FakeCursors:
    return FakeCursors()


@pytest_asyncio.fixture
async def client(edge: Edge, cursors: FakeCursors) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(door_of(edge, cursors)) as client:
        yield client


@pytest_asyncio.fixture
async def elsewhere(edge: Edge, cursors: FakeCursors) -> AsyncIterator[tuple[Edge, httpx2.AsyncClient]]:
    """Another gateway, and a client of it."""
    other = Edge(partition=1, history=edge.history)
    async with client_of(door_of(other, cursors)) as client:
        yield other, client


async def begun(client: httpx2.AsyncClient, edge: Edge, body: dict[str, Any]) -> "asyncio.Future[httpx2.Response]":
    """Ask; return the pending answer once a gateway has published the question."""
    asking, asked = asyncio.ensure_future(client.post("/chat", json=body)), len(edge.asked)
    await until(lambda: len(edge.asked) > asked)
    await until(lambda: edge.gateway.inflight.get(edge.asked[-1].id).answer.created)  # type: ignore[union-attr]
    return asking


async def asked_and_told(client: httpx2.AsyncClient, edge: Edge, body: dict[str, Any]) -> list[dict[str, Any]]:
    asking = await begun(client, edge, body)
    await answer(edge, "Ada.", "Ada")
    got = await asking
    assert (got.status_code, got.headers["x-vercel-ai-ui-message-stream"]) == (200, "v1")
    return parts_of(got.text)


async def test_an_answer_is_streamed_in_parts(client: httpx2.AsyncClient, edge: Edge, cursors: FakeCursors) -> None:
    told = await asked_and_told(client, edge, chat("Who?"))
    assert list(dict.fromkeys(part["type"] for part in told)) == STREAM
    assert (told[0]["messageId"], text_of(told)) == (edge.asked[0].id, "Ada.")
    assert told[-1]["finishReason"] == "stop"
    assert told[-1]["messageMetadata"] == {"source": "model", "reason": "stop"}
    assert (edge.asked[0].session_id, cursors.kept) == ("chat-1", {})


@pytest.mark.parametrize(
    ("body", "turns"),
    [
        (chat("Who?"), None),
        (chat(message=message("user", "Who?")) | {"messages": None}, None),
        (chat("Who?", trigger="regenerate-message"), ()),
        (chat("Hi", "Hello.", "Who?"), (Said(user="Hi", assistant="Hello."),)),
    ],
)
async def test_a_conversation_is_the_clients_or_the_remembered_one_never_both(
    client: httpx2.AsyncClient, edge: Edge, body: dict[str, Any], turns: tuple[Said, ...] | None
) -> None:
    await asked_and_told(client, edge, body)
    assert (edge.asked[0].input, edge.asked[0].turns) == ("Who?", turns)


async def test_an_answer_is_resumed_at_another_gateway_from_its_beginning(
    client: httpx2.AsyncClient, edge: Edge, elsewhere: tuple[Edge, httpx2.AsyncClient]
) -> None:
    other, resumer = elsewhere
    lost = await begun(client, edge, chat("Who?"))
    asked = edge.asked[0]
    other.follower.stands = [delta(asked.id, "Ada Love", session_id=asked.session_id)]
    resuming = asyncio.ensure_future(resumer.get("/chat/chat-1/stream"))
    await until(lambda: (entry := other.gateway.inflight.get(asked.id)) is not None and entry.answer.chars)
    await answer(other, "Ada Lovelace.", asked=asked, after="Ada Love")
    told = parts_of((await resuming).text)
    assert list(dict.fromkeys(part["type"] for part in told)) == STREAM
    assert (told[0]["messageId"], text_of(told)) == (asked.id, "Ada Lovelace.")
    assert (await resumer.get("/chat/chat-1/stream")).status_code == 204
    lost.cancel()


async def test_an_undelivered_end_is_sent_to_a_resuming_client(
    client: httpx2.AsyncClient, edge: Edge, cursors: FakeCursors
) -> None:
    asking = await begun(client, edge, chat("Who?"))
    await until(lambda: cursors.kept)
    kept = dict(cursors.kept)
    await answer(edge, "Ada.")
    await asking
    cursors.kept = kept  # like a client that disconnected before the end
    told = parts_of((await client.get("/chat/chat-1/stream")).text)
    assert (told[0]["messageId"], text_of(told)) == (edge.asked[0].id, "Ada.")


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_stop_cancels_after_a_resume_too_and_at_any_gateway(
    client: httpx2.AsyncClient,
    edge: Edge,
    cursors: FakeCursors,
    elsewhere: tuple[Edge, httpx2.AsyncClient],
    *,
    at_once: bool,
) -> None:
    other, resumer = elsewhere
    first = await begun(client, edge, chat("Who?"))
    await until(lambda: cursors.kept)
    if not at_once:
        resuming = asyncio.ensure_future(resumer.get("/chat/chat-1/stream"))
        await until(lambda: other.gateway.inflight.get(edge.asked[0].id))
    assert (await resumer.post("/chat/chat-1/stop")).status_code == 204
    await until(lambda: other.cancelled)
    assert other.cancelled == [edge.asked[0].id]
    if not at_once:
        told = parts_of((await resuming).text)
        assert [part["type"] for part in told] == ["start", "start-step", "abort", "finish"]
    for path in ("stop", "stream"):
        got = await (resumer.post if path == "stop" else resumer.get)(f"/chat/chat-1/{path}")
        assert got.status_code == 204
    first.cancel()


async def test_deleting_a_chat_erases_its_conversation(client: httpx2.AsyncClient, edge: Edge) -> None:
    await asked_and_told(client, edge, chat("Who?", id="My chat / 1"))
    assert (await client.delete("/chat/My%20chat%20%2F%201")).status_code == 204
    assert [erased.session_id for erased in edge.told_all] == [edge.asked[0].session_id]


async def test_without_redis_an_answer_comes_and_a_resume_reports_why_not(
    client: httpx2.AsyncClient, edge: Edge, cursors: FakeCursors
) -> None:
    cursors.away = True
    assert text_of(await asked_and_told(client, edge, chat("Who?"))) == "Ada."
    got = await client.get("/chat/chat-1/stream")
    assert (got.status_code, got.text) == (503, "try again")


async def test_a_restarted_text_replaces_the_first_one(client: httpx2.AsyncClient, edge: Edge) -> None:
    asking = await begun(client, edge, chat("Who?"))
    asked = edge.asked[0]
    edge.receive_replies([delta(asked.id, "Bob", session_id=asked.session_id)])
    entry = edge.gateway.inflight.get(asked.id)
    assert entry is not None
    await until(lambda: edge.gateway.connections.of(entry))
    exchange: Any = edge.gateway.connections.of(entry)
    await until(lambda: not exchange._items)
    exchange.put(entry.opened())
    exchange.flush()
    await answer(edge, "Bob.", asked=asked, after="Bob")
    types = [part["type"] for part in parts_of((await asking).text)]
    assert types[2:6] == ["text-start", "text-delta", "reset-step", "text-start"]


async def test_only_pages_of_allowed_origins_may_ask(edge: Edge, cursors: FakeCursors) -> None:
    door = door_of(edge, cursors, allowed_origins=("https://shop.example",))
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    async with client_of(door) as client:
        for origin, allowed in (("https://shop.example", "https://shop.example"), ("https://evil.example", None)):
            preflight = await client.options("/chat", headers={"origin": origin} | asks)
            assert preflight.headers.get("access-control-allow-origin") == allowed
            assert preflight.is_success == (allowed is not None)
        refused = await client.post("/chat", json=chat("Who?"), headers={"origin": "https://evil.example"})
        assert (refused.status_code, refused.text) == (403, "pages of this origin may not use this gateway")


@pytest.mark.parametrize(("method", "path"), [("GET", "/chat/none/stream"), ("POST", "/chat/none/stop")])
async def test_a_chat_that_is_looked_up_is_charged(edge: Edge, method: str, path: str) -> None:
    edge.quotas.used_up = {"resume"}
    async with client_of(door_of(edge, FakeCursors())) as client:
        assert (await client.request(method, path)).status_code == 429
