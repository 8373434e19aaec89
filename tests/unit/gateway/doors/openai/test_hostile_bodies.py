"""Any body or header gets an answer in JSON, none of it is logged, and the next request is served."""

import json
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.doors.openai.bodies import ChatBody, ResponsesBody, chat_question, responses_question
from shared.errors import ProtocolError
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import BASE, chat, door_of

SECRET = "my-card-is-4111"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({*ChatBody.__struct_fields__, *ResponsesBody.__struct_fields__})
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "system", "tool"]) | ANYTHING,
            "content": st.text()
            | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": ANYTHING}))
            | ANYTHING,
            "type": st.just("message") | ANYTHING,
        },
    ),
    max_size=4,
)
BODIES = st.builds(
    lambda base, messages, changed: base | {"messages": messages, "input": messages} | changed,
    st.just(chat("?")),
    MESSAGES | ANYTHING,
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4),
)


@pytest.mark.parametrize("read", [chat_question, responses_question])
@given(body=BODIES | ANYTHING)
def test_a_body_is_a_question_or_the_protocols_error(read: Any, body: Any) -> None:
    try:
        question = read(json.dumps(body).encode(), None)
    except ProtocolError as error:
        told = (error.kind, SECRET in {error.code, error.param})
    else:
        told = ("invalid_request_error", not question.input.strip() or len(question.turns or ()) > 50)
    assert told == ("invalid_request_error", False)


@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        chat_question(data, None)


HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "authorization",
            "content-length",
            "idempotency-key",
            "replyline-session",
            "traceparent",
            "x-forwarded-for",
            "x-stainless-read-timeout",
            "x-stainless-retry-count",
        ]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80) | st.sampled_from(["nan", "-1", "1e400"]),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(headers=HEADERS, body=BODIES)
async def test_no_request_breaks_the_door(headers: dict[str, str], body: Any) -> None:
    """Kafka is away, so that each is answered immediately."""
    edge = Edge(kafka_is_away=True)
    headers.pop("content-length", None)
    transport = httpx2.ASGITransport(app=door_of(edge).app(), raise_app_exceptions=True)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        for path in ("/chat/completions", "/responses"):
            got = await client.post(path, content=json.dumps(body).encode(), headers=headers)
            assert got.status_code != 500
            if got.headers["content-type"].startswith("application/json"):
                assert "error" in got.json() or got.status_code == 200
        sound = await client.post("/chat/completions", json=chat("How do I return an item?"))
        assert sound.json()["source"] == "faq"
    assert len(edge.gateway.inflight) == 0


async def test_nothing_of_a_refused_request_is_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    edge = Edge(kafka_is_away=True)
    transport = httpx2.ASGITransport(app=door_of(edge).app())
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        for field in FIELDS:
            await client.post("/chat/completions", json=chat(SECRET) | {field: {SECRET: SECRET}})
            await client.post("/responses", json={"model": SECRET, "input": SECRET, field: [SECRET]})
        await client.post("/chat/completions", json=chat(SECRET), headers={"idempotency-key": SECRET})
        await client.get(f"/responses/{SECRET}")
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("method", "path", "content", "said"),
    [
        ("GET", "/models/gpt-9", "", "no model 'gpt-9' here; GET /v1/models lists"),
        ("POST", "/embeddings", "{}", "no POST /v1/embeddings here; GET /openapi.json lists"),
        ("GET", "/chat/completions", "", "no GET /v1/chat/completions here; GET /openapi.json lists"),
        ("GET", "/responses/resp_x", "", "no response is stored under this id"),
        ("GET", "/conversations/mine", "", "no conversation has this id; POST /v1/conversations makes one"),
        ("POST", "/responses", "", "the body is empty; send JSON"),
    ],
)
async def test_a_refusal_names_what_is_not_there(
    client: httpx2.AsyncClient, method: str, path: str, content: str, said: str
) -> None:
    got = await client.request(method, path, content=content)
    assert got.json()["error"]["message"].startswith(said)
