"""The door that speaks OpenAI's interfaces over HTTP: its paths and its refusals."""

import time
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as HttpResponse
from starlette.routing import Route

from gateway.exchange.refusals import RefusalError
from gateway.http.requests import HttpRequests
from gateway.openai.bodies import chat_question
from gateway.openai.chat import ChatTeller
from gateway.openai.names import session_name
from gateway.openai.openapi import openapi
from gateway.openai.pages import SESSION_HEADER, Answer, Handler, answer, check_model, page, refusal
from gateway.openai.stored import StoredResponses
from shared.errors import ProtocolError
from shared.telemetry import metrics
from shared.telemetry.faults import caught
from shared.wire.failed_ends import OWN_FAULT, detail_of
from shared.wire.outcome import ErrorDetail


@dataclass(slots=True, kw_only=True)
class OpenAiDoor:
    http: HttpRequests
    models: tuple[str, ...]
    _started_unix_s: int = field(default_factory=lambda: int(time.time()))

    def app(self) -> Starlette:
        stored = StoredResponses(http=self.http, models=self.models)
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
        question = chat_question(await self.http.body(request), request.headers.get(SESSION_HEADER))
        check_model(question.model, self.models)
        teller = ChatTeller(model=question.model, created_unix_s=int(time.time()), include_usage=question.include_usage)
        name, keep = session_name(question.names), "idempotency-key" in request.headers
        return await answer(self.http, request, question, name, keep=keep, teller_of=lambda _: teller)

    async def _list_models(self, request: Request) -> Answer:
        del request
        return page({"object": "list", "data": [self._described(model) for model in self.models]})

    async def _model(self, request: Request) -> Answer:
        model = request.path_params["model"]
        check_model(model, self.models)
        return page(self._described(model))

    def _described(self, model: str) -> dict[str, object]:
        return {"id": model, "object": "model", "created": self._started_unix_s, "owned_by": "replyline"}


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
