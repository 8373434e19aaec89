"""The HTTP paths for `useChat`, the chat hook of Vercel's AI SDK. An answer is streamed in the AI SDK's format; its
client can resume or stop it at any gateway."""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from gateway.doors.ai_sdk.bodies import chat_question, session_of
from gateway.doors.ai_sdk.chats import Chats, Running
from gateway.doors.ai_sdk.parts import UiEncoder
from gateway.doors.ai_sdk.sockets import ChatSocket
from gateway.http.handlers import Answer, HandledPath, app_of
from gateway.http.headers import notices
from gateway.http.requests import HttpRequests
from gateway.http.statuses import error_headers, status_of
from gateway.http.streams import STREAM_HEADERS, EventStream
from shared.settings.origins import origin_may_connect
from shared.wire.outcome import ErrorDetail

PREFIX: Final = "/ai-sdk"
_HEADERS: Final = {**STREAM_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}
_NOTHING: Final = 204


@dataclass(frozen=True, slots=True, kw_only=True)
class AiSdkDoor:
    http: HttpRequests
    chats: Chats
    _sockets: set[ChatSocket] = field(default_factory=set)

    def app(self) -> ASGIApp:
        """Return the application below `PREFIX`. Pages of the allowed origins may use it."""
        paths: tuple[HandledPath, ...] = (
            ("POST", "/chat", self._ask),
            ("GET", "/chat/{id:path}/stream", self._resume),
            ("POST", "/chat/{id:path}/stop", self._stop),
            ("DELETE", "/chat/{id:path}", self._erase),
        )
        return CORSMiddleware(
            app_of(paths, "ai_sdk", _refusal, [WebSocketRoute("/chat", self._talk)]),
            allow_origins=self.http.settings.allowed_origins or ["*"],
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["retry-after", "replyline-ignored"],
        )

    async def _talk(self, socket: WebSocket) -> None:
        """Serve a socket of `WebSocketChatTransport`, if its page may connect and the limits allow it."""
        exchanges, most = self.http.exchanges, self.http.settings.max_connections
        origins = socket.headers.getlist("origin")
        full = exchanges.memory.refuses or len(self._sockets) >= most
        if full or not origin_may_connect(origins, exchanges.allowed_origins):
            await socket.close()
            return
        talk = ChatSocket(socket=socket, chats=self.chats, http=self.http)
        self._sockets.add(talk)
        try:
            await talk.serve()
        finally:
            self._sockets.discard(talk)

    async def _ask(self, request: Request) -> Answer:
        question = await self.http.decoded(request, chat_question)
        return self._stream(await self.chats.ask(self.http.asker(request), question))

    async def _resume(self, request: Request) -> Answer:
        running = await self.chats.resume(self.http.asker(request), _session(request))
        return HttpResponse(status_code=_NOTHING) if running is None else self._stream(running)

    def _stream(self, running: Running) -> EventStream:
        return EventStream(
            http=self.http,
            answer_events=self.chats.answer_events(running, UiEncoder(message_id=running.response_id)),
            keep=True,
            headers={**_HEADERS, **notices(running.exchange.ignored)},
            delivered=partial(self.chats.remove_cursor, running),
        )

    async def _stop(self, request: Request) -> Answer:
        await self.chats.stop(self.http.asker(request), _session(request))
        return HttpResponse(status_code=_NOTHING)

    async def _erase(self, request: Request) -> Answer:
        await self.chats.erase(self.http.asker(request), _session(request))
        return HttpResponse(status_code=_NOTHING)


def _session(request: Request) -> str:
    return session_of(request.path_params["id"])


def _refusal(error: ErrorDetail) -> HttpResponse:
    """Return an error response whose body `useChat` shows as the error's text."""
    return HttpResponse(error.message, status_of(error), error_headers(error), "text/plain")
