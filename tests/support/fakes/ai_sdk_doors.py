"""The AI SDK's door of a gateway without its services."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

from gateway.access.identity import TokenGate
from gateway.doors.ai_sdk.chats import Chats
from gateway.doors.ai_sdk.door import AiSdkDoor
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
    """Return the body of a question: alternating texts of the customer and the shop."""
    messages = [message(("user", "assistant")[at % 2], text) for at, text in enumerate(said)]
    return {"id": "chat-1", "trigger": "submit-message", "messages": messages} | fields


def parts_of(stream: str) -> list[dict[str, Any]]:
    """Return the parts of a stream that has ended as it should."""
    *parts, end = [line.removeprefix("data: ") for line in stream.split("\n\n") if line.startswith("data: ")]
    assert end == "[DONE]"
    return [json.loads(part) for part in parts]


def text_of(parts: list[dict[str, Any]]) -> str:
    return "".join(part.get("delta", "") for part in parts)


class ChatPage:
    """A page's socket: what it sends, and what it has received while it `reads`."""

    def __init__(self, door: AiSdkDoor, **headers: str) -> None:
        self.told: list[dict[str, Any]] = []
        self.closed: int | None = None
        self.reads = asyncio.Event()
        self.reads.set()
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._sent.put_nowait({"type": "websocket.connect"})
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "websocket", "path": "/chat", "query_string": b"", "headers": named, "subprotocols": []}
        self.served = asyncio.ensure_future(door.app()(scope, self._sent.get, self._hear))

    async def _hear(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "websocket.send":
            self.told.append(json.loads(message["text"]))
        elif message["type"] == "websocket.close":
            self.closed = message["code"]

    def send(self, kind: str, request: str, **fields: Any) -> None:
        self.send_text(json.dumps({"type": kind, "requestId": request, "headers": {}, "body": {}} | fields))

    def send_text(self, text: str) -> None:
        self._sent.put_nowait({"type": "websocket.receive", "text": text})

    def send_bytes(self, data: bytes) -> None:
        self._sent.put_nowait({"type": "websocket.receive", "bytes": data})

    async def leave(self) -> None:
        self._sent.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await self.served

    def of(self, request: str) -> list[str]:
        """Return the kinds of messages received for that request."""
        frames = [frame for frame in self.told if frame["requestId"] == request]
        chunks = [frame for frame in frames if frame["type"] == "chunk"]
        assert [frame["sequence"] for frame in chunks] == list(range(len(chunks)))
        return [frame.get("chunk", frame)["type"] for frame in frames]
