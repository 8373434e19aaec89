"""The OpenAI door of a gateway without its services."""

import asyncio
from typing import Any

import httpx2
from msgspec.structs import replace

from gateway.access.identity import TokenGate
from gateway.destination.memory_watch import MemoryWatch
from gateway.doors.openai.door import OpenAiDoor
from gateway.exchange.exchanges import Exchanges
from gateway.http.requests import HttpRequests
from gateway.session.session_limits import SessionLimits
from shared.settings.gateway import GatewaySettings
from shared.wire.messages import ChatRequest
from tests.support.fakes.gateways import MINUTE_MS, Edge, delta, done, until
from tests.support.fakes.sessions import ANNOUNCED

BASE = "http://gateway/v1"


def http_of(edge: Edge, gate: TokenGate | None = None, **settings: Any) -> HttpRequests:
    limits = SessionLimits(
        hello_timeout_ms=5_000,
        heartbeat_ms=0,
        messages_per_minute=100,
        announced=replace(ANNOUNCED, deadline_ms=MINUTE_MS),
        handoff=False,
    )
    given = GatewaySettings(**settings)
    exchanges = Exchanges(
        gateway=edge.gateway,
        allowed_origins=given.allowed_origins,
        session_limits=limits,
        tenant="demo",
        gate=gate,
        memory=MemoryWatch(),
        history=edge.gateway.erasing.history,
    )
    return HttpRequests(exchanges=exchanges, settings=given)


def door_of(edge: Edge, gate: TokenGate | None = None, **settings: Any) -> OpenAiDoor:
    return OpenAiDoor(http=http_of(edge, gate, **settings), models=("replyline",))


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "replyline", "messages": [{"role": "user", "content": text}]} | fields


async def answer(edge: Edge, text: str, *pieces: str, asked: ChatRequest | None = None, after: str = "") -> None:
    """Let the worker answer that question, or else the newest, in these pieces after its earlier ones."""
    asked = asked or edge.asked[-1]
    await until(lambda: (entry := edge.gateway.inflight.get(asked.id)) is not None and entry.answer.created)
    offset = len(after)
    for piece in pieces:
        edge.receive_replies([delta(asked.id, piece, offset, session_id=asked.session_id)])
        offset += len(piece)
    edge.receive_replies([done(asked.id, text, session_id=asked.session_id)])


async def ask(
    client: httpx2.AsyncClient,
    edge: Edge,
    body: dict[str, Any],
    text: str,
    *,
    path: str = "/chat/completions",
    **headers: str,
) -> Any:
    asking = asyncio.ensure_future(client.post(path, json=body, headers=headers))
    asked = len(edge.asked)
    await until(lambda: asking.done() or len(edge.asked) > asked)
    if not asking.done():
        await answer(edge, text)
    return await asking
