"""The HTTP paths of OpenAI's interfaces (chat completions, responses, models), and errors in OpenAI's format."""

import time
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request

from gateway.doors.openai.bodies import OpenAiQuestion, chat_question
from gateway.doors.openai.chat import ChatEncoder
from gateway.doors.openai.openapi import openapi
from gateway.doors.openai.pages import SESSION_HEADER, answer, check_model, page, refusal
from gateway.doors.openai.stored import StoredResponses
from gateway.exchange.question import session_name
from gateway.http.handlers import Answer, HandledPath, app_of, unknown_path
from gateway.http.requests import HttpRequests


@dataclass(slots=True, kw_only=True)
class OpenAiDoor:
    http: HttpRequests
    models: tuple[str, ...]
    _started_unix_s: int = field(default_factory=lambda: int(time.time()))

    def app(self) -> Starlette:
        stored = StoredResponses(http=self.http, models=self.models)
        described = page(openapi())

        async def document(request: Request) -> Answer:
            del request
            return described

        paths: tuple[HandledPath, ...] = (
            ("POST", "/v1/chat/completions", self._chat),
            ("POST", "/v1/responses", stored.create),
            ("GET", "/v1/responses/{id}", stored.fetch),
            ("DELETE", "/v1/responses/{id}", stored.delete),
            ("POST", "/v1/responses/{id}", _nowhere),  # compaction and other unsupported actions
            ("POST", "/v1/responses/{id}/cancel", stored.cancel),
            ("POST", "/v1/conversations", stored.create_conversation),
            ("GET", "/v1/conversations/{id}", stored.conversation),
            ("DELETE", "/v1/conversations/{id}", stored.delete_conversation),
            ("GET", "/openapi.json", document),
            ("GET", "/v1/models", self._list_models),
            ("GET", "/v1/models/{model:path}", self._model),
        )
        return app_of(paths, "openai", refusal)

    async def _chat(self, request: Request) -> Answer:
        header = request.headers.get(SESSION_HEADER)
        question = await self.http.decoded(request, lambda data: self._question(data, header))
        encoder = ChatEncoder(
            model=question.model, created_unix_s=int(time.time()), include_usage=question.include_usage
        )
        name, keep = session_name(question.names), "idempotency-key" in request.headers
        return await answer(self.http, request, question, name, keep=keep, encoder_of=lambda _: encoder)

    def _question(self, data: bytes, header: str | None) -> OpenAiQuestion:
        question = chat_question(data, header)
        check_model(question.model, self.models)
        return question

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
    raise unknown_path(request)
