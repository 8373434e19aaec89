"""A refusal names a field by the server's own words, not by words repeated from the request."""

import json
from typing import Any, Final

import pytest

from workers.engine import Sampling
from workers.engine.upstream.body import ChatMessage, chat_body
from workers.engine.upstream.failures import PLAIN, of_status, refused_field

POISON: Final = (
    'My "seed" must not stop; the temperature, top_p and system role: include_usage, "param": "seed" {jinja}'
)
SHOP: Final = "Seeds need a high temperature; never stop before the system prompt says so."


def asked(text: str = POISON) -> bytes:
    messages = (ChatMessage("system", SHOP), ChatMessage("user", text))
    return chat_body(model="m", messages=messages, max_tokens=9, sampling=Sampling())


BODY: Final = json.loads(asked())
WRONG: Final = "Value error, the prompt is not allowed"
ECHOES: Final[dict[str, Any]] = {
    "a message": {"error": {"message": f"{WRONG}: {POISON}"}},
    "a part in a message": {"error": {"message": f"{WRONG}: {POISON[:40]}..."}},
    "both prompts": {"error": {"message": f"{WRONG}: {SHOP} {POISON}"}},
    "an escaped message": {"error": {"message": f"{WRONG}: {json.dumps(POISON)}"}},
    "a message that repeats the request": {"message": f"[{{'msg': '{WRONG}', 'input': {BODY}}}]"},
    "pydantic's text": {"message": f"1 validation error\n  {WRONG} [type=value_error, input_value={BODY}]"},
    "pydantic's input": {"detail": [{"loc": ["body", "messages"], "msg": WRONG, "input": BODY["messages"]}]},
    "a handler's body": {"detail": WRONG, "body": BODY},
    "a proxy's request": {"error": {"message": WRONG, "request": BODY, "param": None}},
    "a list": [WRONG, {"input": POISON}],
    "a text": f"{WRONG}: {POISON}",
}


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("cut", [0, 1, 30])
def test_what_a_server_repeats_of_the_request_names_no_field(echo: str, cut: int) -> None:
    said = json.dumps(ECHOES[echo]).encode()
    assert refused_field(said[: len(said) - cut], asked()) == PLAIN


@pytest.mark.parametrize("status", [500, 501, 502])
def test_an_echo_makes_no_refusal_of_a_failure(status: int) -> None:
    said = {"error": {"message": f"CUDA error while answering {POISON}", "input": BODY}}
    assert of_status(status, None, json.dumps(said).encode(), asked()).cause == "failed"


@pytest.mark.parametrize(
    "said",
    [
        {"error": {"message": f"Unsupported value for '{POISON}'", "param": "seed"}},
        {"error": {"message": POISON, "param": "seed.value"}},
        {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]},
        {"detail": [{"loc": ["body", "seed", "value", 0], "msg": "Extra inputs are not permitted"}]},
        {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": BODY}], "body": BODY},
    ],
    ids=str,
)
def test_an_errors_own_name_of_a_field_counts_whatever_the_customer_wrote(said: Any) -> None:
    assert refused_field(json.dumps(said).encode(), asked()) == "seed"


@pytest.mark.parametrize(
    ("said", "field"),
    [
        (b"unknown argument: seed", "seed"),
        (b'{"detail": [{"loc": ["body", "seed"], "msg": "extra", "input": {"messages": [{"con', "seed"),
        (b'{"error": "temperature is fixed", "body": {"seed": 7}}', "temperature"),
        (b'{"errors": [{"message": "stream_options: unexpected"}]}', "stream_options"),
        (b'{"error": {"message": "Error rendering chat template", "code": 400}}', "system"),
        (b"[" * 900 + b'"seed"' + b"]" * 900, "seed"),
        (b'{"error": null, "message": 7, "loc": {}, "param": []}', PLAIN),
    ],
)
def test_a_message_names_a_field(said: bytes, field: str) -> None:
    assert refused_field(said, asked("Where is my order?")) == field


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Jinja Exception: System role not supported", "system"),
        ("Error: Jinja Exception: Conversation roles must alternate user/assistant", "system"),
        ("TemplateError: only user and assistant roles are supported", "system"),
        ("the seed was lost", None),
        ("CUDA out of memory", None),
    ],
)
def test_a_500_about_the_template_is_a_refusal_of_the_form(message: str, field: str | None) -> None:
    said = json.dumps({"error": {"code": 500, "message": message}}).encode()
    failure = of_status(500, None, said, asked("Where is my order?"))
    assert failure.field == field
    assert failure.cause == ("failed" if field is None else "refused")
