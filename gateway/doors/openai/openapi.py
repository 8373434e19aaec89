"""Generate the OpenAPI document of the OpenAI-compatible paths from the Structs that decode their bodies. Pure."""

from typing import Any, Final, get_args

import msgspec

from gateway.doors.openai.bodies import ChatBody, ResponsesBody
from shared.wire.outcome import Source, Status

_REF: Final = "#/components/schemas/{name}"
_TEXT: Final = {"type": "string"}
_EVENT: Final = {"type": "object", "required": ["data"], "properties": {"data": _TEXT, "event": _TEXT}}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "code": _TEXT,
                "param": {"type": ["string", "null"]},
            },
        }
    },
}
_OWN: Final[dict[str, Any]] = {
    "chat.completion": {"source": {"enum": list(get_args(Source))}},
    "response": {"status": {"enum": [*get_args(Status), "in_progress"]}},
}
_ID: Final = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
_REATTACH: Final = (
    {"name": "stream", "in": "query", "schema": {"type": "boolean"}},
    {"name": "starting_after", "in": "query", "schema": {"type": "integer"}},
)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document."""
    (chat, responses), schemas = msgspec.json.schema_components((ChatBody, ResponsesBody), ref_template=_REF)
    chat_fields, responses_fields = (schemas[name] for name in ("ChatBody", "ResponsesBody"))
    chat_fields["required"] = ["model", "messages"]
    responses_fields["required"] = ["model", "input"]
    model = _ID | {"name": "model"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Replyline's OpenAI door", "version": "1"},
        "paths": {
            "/v1/chat/completions": {
                "post": _operation("chat.completion", "Answer a conversation", chat, streams=True)
            },
            "/v1/responses": {"post": _operation("response", "Answer in a conversation", responses, streams=True)},
            "/v1/responses/{id}": {
                "parameters": [_ID],
                "get": _operation("response", "Fetch or follow", streams=True) | {"parameters": list(_REATTACH)},
                "delete": _operation("response", "Erase it with its conversation"),
            },
            "/v1/responses/{id}/cancel": {"parameters": [_ID], "post": _operation("response", "Cancel")},
            "/v1/conversations": {"post": _operation("conversation", "Name a conversation")},
            "/v1/conversations/{id}": {
                "parameters": [_ID],
                "get": _operation("conversation", "Fetch"),
                "delete": _operation("conversation.deleted", "Erase"),
            },
            "/v1/models": {"get": _operation("list", "List the model's names")},
            "/v1/models/{model}": {"parameters": [model], "get": _operation("model", "Fetch a model")},
        },
        "components": {
            "schemas": schemas | {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(
    answer: str, summary: str, body: dict[str, Any] | None = None, *, streams: bool = False
) -> dict[str, Any]:
    """Return an operation that answers with an object of that kind, or an error."""
    fields = {"object": {"const": answer}, **_OWN.get(answer, {})}
    told: dict[str, Any] = {"type": "object", "required": ["object"], "properties": fields}
    content: dict[str, Any] = {"application/json": {"schema": told}}
    if streams:
        content["text/event-stream"] = {"schema": _EVENT}
    refused = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "the answer", "content": content},
            "default": {"description": "the error", "content": refused},
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
