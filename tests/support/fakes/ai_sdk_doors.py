"""The AI SDK's door of a gateway without its services."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

from gateway.access.identity import TokenGate
from gateway.ai_sdk.chats import Chats
from gateway.ai_sdk.door import AiSdkDoor
from shared.errors import StoreUnavailable
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import http_of


@dataclass
class FakeCursors:
    """Redis: the cursor of each session's running answer, all gateways'."""

    kept: dict[SessionKey, bytes] = field(default_factory=dict)
    away: bool = False

    async def find(self, session: SessionKey) -> bytes | None:
        if self.away:
            raise StoreUnavailable("away")
        return self.kept.get(session)

    async def put(self, session: SessionKey, value: bytes, **_: object) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        self.kept[session] = value
        return True

    async def remove(self, session: SessionKey, value: bytes) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        return self.kept.get(session) == value and self.kept.pop(session) == value


def door_of(edge: Edge, cursors: Any, gate: TokenGate | None = None, **settings: Any) -> AiSdkDoor:
    http = http_of(edge, gate, **settings)
    return AiSdkDoor(http=http, chats=Chats(exchanges=http.exchanges, cursors=cursors))


def client_of(door: AiSdkDoor) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door.app()), base_url="http://gateway")


def message(role: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"m-{text}", "role": role, "parts": [{"type": "text", "text": text}]} | fields


def chat(*said: str, **fields: Any) -> dict[str, Any]:
    """Return the body of a question: what the customer and the shop said in turns."""
    messages = [message(("user", "assistant")[at % 2], text) for at, text in enumerate(said)]
    return {"id": "chat-1", "trigger": "submit-message", "messages": messages} | fields


def parts_of(stream: str) -> list[dict[str, Any]]:
    """Return the parts of a stream that has ended as it should."""
    *parts, end = [line.removeprefix("data: ") for line in stream.split("\n\n") if line.startswith("data: ")]
    assert end == "[DONE]"
    return [json.loads(part) for part in parts]


def text_of(parts: list[dict[str, Any]]) -> str:
    return "".join(part.get("delta", "") for part in parts)
