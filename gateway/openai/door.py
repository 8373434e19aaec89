"""The door that speaks OpenAI's interfaces over HTTP: its paths, its refusals, its server."""

import asyncio
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.openai.bodies import chat_question
from gateway.openai.chat import ChatTeller
from gateway.openai.exchanges import Exchanges
from gateway.openai.names import session_name
from gateway.openai.openapi import openapi
from gateway.openai.pages import SESSION_HEADER, Answer, Handler, answer, check_model, page, refusal
from gateway.openai.refusals import RefusalError
from gateway.openai.stored import StoredResponses
from shared.errors import ProtocolError
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.wire.failed_ends import OWN_FAULT, detail_of
from shared.wire.outcome import ErrorDetail

_BACKLOG: Final = 4_096


@dataclass(slots=True, kw_only=True)
class OpenAiDoor:
    exchanges: Exchanges
    models: tuple[str, ...]
    _server: "_Server | None" = None
    _started_unix_s: int = field(default_factory=lambda: int(time.time()))

    def app(self) -> Starlette:
        stored = StoredResponses(exchanges=self.exchanges, models=self.models)
        paths: tuple[tuple[str, str, Handler], ...] = (
            ("POST", "/v1/chat/completions", self._chat),
            ("POST", "/v1/responses", stored.create),
            ("GET", "/v1/responses/{id}", stored.fetch),
            ("DELETE", "/v1/responses/{id}", stored.delete),
            ("POST", "/v1/responses/{id}", _nowhere),  # compaction, and what else may be asked for there
            ("POST", "/v1/responses/{id}/cancel", stored.cancel),
            ("POST", "/v1/conversations", stored.create_conversation),
            ("GET", "/v1/conversations/{id}", stored.conversation),
            ("DELETE", "/v1/conversations/{id}", stored.delete_conversation),
            ("GET", "/openapi.json", _document),
            ("GET", "/v1/models", self._list_models),
            ("GET", "/v1/models/{model:path}", self._model),
        )
        return Starlette(
            routes=[Route(path, self._answering(handler), methods=[method]) for method, path, handler in paths],
            exception_handlers={HTTPException: _http_error},
        )

    def _answering(self, handler: Handler) -> Handler:
        """Turn what a handler raises into an answer."""

        async def answered(request: Request) -> Answer:
            try:
                return await handler(request)
            except ProtocolError as error:
                if not isinstance(error, RefusalError):
                    metrics.refused.labels(error.code).inc()
                return refusal(detail_of(error))
            except Exception as error:  # noqa: BLE001 - counted and logged; this client is told to come back
                caught("connection", error, door="openai")
                return refusal(OWN_FAULT)

        return answered

    async def _chat(self, request: Request) -> Answer:
        question = chat_question(await self.exchanges.body(request), request.headers.get(SESSION_HEADER))
        check_model(question.model, self.models)
        teller = ChatTeller(model=question.model, created_unix_s=int(time.time()), include_usage=question.include_usage)
        name, keep = session_name(question.names), "idempotency-key" in request.headers
        return await answer(self.exchanges, request, question, name, keep=keep, teller_of=lambda _: teller)

    async def _list_models(self, request: Request) -> Answer:
        del request
        return page({"object": "list", "data": [self._described(model) for model in self.models]})

    async def _model(self, request: Request) -> Answer:
        model = request.path_params["model"]
        check_model(model, self.models)
        return page(self._described(model))

    def _described(self, model: str) -> dict[str, object]:
        return {"id": model, "object": "model", "created": self._started_unix_s, "owned_by": "replyline"}

    # --- the server

    async def serve(self, listening: socket.socket, *, drain_s: float) -> None:
        """Serve until `stop`, and then until the last answer has left, `drain_s` at most."""
        config = uvicorn.Config(
            self.app(),
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            limit_concurrency=self.exchanges.settings.max_connections,
            timeout_keep_alive=math.ceil(self.exchanges.settings.hello_timeout_s),
            timeout_graceful_shutdown=max(1, round(drain_s)),
        )
        self._server = _Server(config)
        await self._server.serve([listening])

    def stop(self) -> None:
        """Accept nobody from now on."""
        if self._server is not None:
            self._server.should_exit = True


class _Protocol(HttpToolsProtocol):
    """A connection that is closed where its first request does not come in time."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(self.timeout_keep_alive, self._close_unused)

    def _close_unused(self) -> None:
        cycle: object = self.cycle
        if cycle is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """A server in a process that hears its signals itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Listen on that address. Raises `OSError` where it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


async def _nowhere(request: Request) -> Answer:
    del request
    raise ProtocolError("not_found", "Not Found")


async def _document(request: Request) -> Answer:
    del request
    return page(openapi())


async def _http_error(request: Request, error: Exception) -> HttpResponse:
    """Answer a path or a method that is not there."""
    del request
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"  # noqa: PLR2004
    told = ErrorDetail(type="invalid_request_error", code=code, message=error.detail, retryable=False)
    return refusal(told)
