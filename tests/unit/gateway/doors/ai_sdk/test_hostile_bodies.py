"""Any body from a page gets an answer or one plain line, none of it is logged, and the next request is served."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.doors.ai_sdk.bodies import chat_question
from shared.errors import ProtocolError
from tests.support.fakes.ai_sdk_doors import FakeCursors, chat, client_of, door_of, message, parts_of
from tests.support.fakes.gateways import Edge

SECRET = "my-card-is-4111"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.builds(dict, type=st.sampled_from(["text", "file", "step-start"]), text=st.text() | ANYTHING))
MESSAGES = st.lists(
    st.builds(dict, role=st.sampled_from(["user", "assistant", "system", "tool"]), parts=PARTS | ANYTHING), max_size=4
)
CHANGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text() | ANYTHING,
        "messages": MESSAGES | ANYTHING,
        "message": ANYTHING,
        "trigger": st.just("regenerate-message") | ANYTHING,
    },
)
BODIES = st.builds(lambda changes: chat("?") | changes, CHANGES) | ANYTHING


@given(body=BODIES)
def test_a_body_is_a_question_or_the_protocols_error(body: Any) -> None:
    try:
        told = (bool(chat_question(json.dumps(body).encode()).input.strip()), False)
    except ProtocolError as error:
        told = (error.kind == "invalid_request_error", SECRET in {error.code, error.param})
    assert told == (True, False)


@settings(max_examples=60, deadline=None)
@given(body=BODIES, chat_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
async def test_no_request_breaks_the_door(body: Any, chat_id: str) -> None:
    """Kafka is away, so that each is answered immediately."""
    edge = Edge(kafka_is_away=True)
    async with client_of(door_of(edge, FakeCursors())) as client:
        got = await client.post("/chat", content=json.dumps(body).encode())
        assert got.status_code != 500
        if got.status_code != 200:
            assert got.headers["content-type"].startswith("text/plain")
            assert got.text
        for ask, path in ((client.get, "stream"), (client.post, "stop")):
            name = "".join(f"%{byte:02x}" for byte in chat_id.encode())
            assert (await ask(f"/chat/{name}/{path}")).status_code in {204, 400, 404}
        told = parts_of((await client.post("/chat", json=chat("How do I return an item?"))).text)
    assert told[-1]["messageMetadata"]["source"] == "faq"
    (source,) = [part for part in told if part["type"] == "source-document"]
    assert source["title"]
    assert len(edge.gateway.inflight) == 0


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"id": "c"}, "send the chat's messages"),
        (chat() | {"message": message("user", "?"), "trigger": "regenerate-message"}, "send the chat's messages"),
        (chat("Hi", "Hello."), "the last message must be the user's and not blank"),
        (chat("") | {"messages": [{"role": "user", "parts": [{"type": "file"}]}]}, "only text is supported"),
    ],
)
async def test_an_unanswerable_body_gets_one_line(body: dict[str, Any], line: str) -> None:
    async with client_of(door_of(Edge(kafka_is_away=True), FakeCursors())) as client:
        got = await client.post("/chat", json=body)
    assert got.status_code == 400
    assert line in got.text
    assert "\n" not in got.text


WORDS = "How do I return an item?"
FILE = {"type": "file", "mediaType": "image/png", "url": "data:,"}


@pytest.mark.parametrize(
    ("messages", "ignored"),
    [
        ([{"role": "user", "parts": [FILE, {"type": "text", "text": WORDS}]}], "file"),
        ([{"role": "data", "parts": []}, {"role": "tool", "content": "1"}, message("user", WORDS)], "data, tool"),
        ([{"role": "user", "parts": [FILE]}, message("user", WORDS)], "file"),
        ([{"role": "user", "parts": [FILE]}, message("assistant", "?"), message("user", WORDS)], "file"),
        ([{"role": "user", "content": WORDS}], None),
        ([{"role": "user", "content": WORDS, "parts": None}], None),
    ],
)
async def test_parts_other_than_text_are_left_out_and_named(messages: list[Any], ignored: str | None) -> None:
    assert chat_question(json.dumps({"id": "c", "messages": messages}).encode()).input == WORDS
    async with client_of(door_of(Edge(kafka_is_away=True), FakeCursors())) as client:
        got = await client.post("/chat", json={"id": "c", "messages": messages})
    assert (got.status_code, got.headers.get("replyline-ignored")) == (200, ignored)


async def test_nothing_of_a_refused_request_is_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with client_of(door_of(Edge(kafka_is_away=True), FakeCursors())) as client:
        for body in (chat(SECRET, trigger={SECRET: 1}), chat(SECRET, id={SECRET: 1}), {SECRET: SECRET}, [SECRET]):
            assert (await client.post("/chat", json=body)).status_code == 400
        await client.get(f"/chat/{SECRET}/stream")
        await client.post(f"/{SECRET}")
    assert SECRET not in "".join(capfd.readouterr())
