"""Chat completions over the door's own application, and the gateway behind it."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from gateway.exchange import exchanges
from shared.wire.messages import Said
from tests.support.fakes.gateways import Edge, done, quiet, until
from tests.support.fakes.openai_doors import answer, ask, chat, door_of

MODEL = "replyline"


async def test_an_answer_is_one_completion(client: httpx2.AsyncClient, edge: Edge) -> None:
    got = await ask(client, edge, chat("Where is it?"), "In transit.")
    assert got.status_code == 200
    body = got.json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "In transit."
    assert (body["choices"][0]["finish_reason"], body["source"]) == ("stop", "model")
    assert got.headers["x-request-id"] == edge.asked[0].id
    assert len(edge.gateway.inflight) == 0


async def test_a_stream_sends_its_role_once_and_its_usage_last(client: httpx2.AsyncClient, edge: Edge) -> None:
    body = chat("Where is it?", stream=True, stream_options={"include_usage": True})
    asking = asyncio.ensure_future(client.post("/chat/completions", json=body))
    await until(lambda: edge.asked)
    await answer(edge, "In transit.", "In ", "transit.")
    lines = [line.removeprefix("data: ") for line in (await asking).text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    assert [chunk["usage"] is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1]["choices"] == []
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert sum("role" in each for each in deltas) == 1
    assert "".join(each.get("content", "") for each in deltas) == "In transit."
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


async def test_the_conversation_comes_from_the_client(client: httpx2.AsyncClient, edge: Edge) -> None:
    messages = [
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": "I am "}, {"type": "text", "text": "Ada."}]},
        {"role": "assistant", "content": "Hi Ada."},
        {"role": "user", "content": "Who"},
        {"role": "user", "content": "am I?"},
    ]
    await ask(client, edge, {"model": MODEL, "messages": messages, "max_tokens": 7, "stop": "x"}, "Ada.")
    asked = edge.asked[0]
    assert asked.turns == (Said(user="", assistant="Hello!"), Said(user="I am Ada.", assistant="Hi Ada."))
    assert (asked.input, asked.max_output_tokens, asked.stop) == ("Who\n\nam I?", 7, ("x",))


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "gpt-5"}, 404, "model"),
        ({"model": None}, 400, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "messages"),
        ({"messages": [{"role": "tool", "content": "1"}]}, 400, "messages"),
        ({"messages": [{"role": "narrator", "content": "1"}]}, 400, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages[0].content",
        ),
        ({"n": 2}, 400, "n"),
        ({"n": [1]}, 400, "n"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format"),
        ({"temperature": 3}, 400, "temperature"),
        ({"stop": ["a"] * 5}, 400, "stop"),
        ({"stop": "a" * 65}, 400, "stop"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, 400, "tool_choice"),
        ({"response_format": "json_object"}, 400, "response_format"),
        ({"modalities": ["text", "audio"]}, 400, "modalities"),
        ({"tools": [{}], "logit_bias": {}, "unheard_of": 1}, 200, None),
        ({"tool_choice": {"type": "auto"}, "function_call": "", "modalities": []}, 200, None),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "n": 0}, 200, None),
        ({"tool_choice": {"type": "allowed_tools", "mode": "required"}}, 400, "tool_choice"),
        ({"tool_choice": "", "response_format": {}, "metadata": [], "stream_options": []}, 200, None),
        ({"response_format": "text", "modalities": "text", "stop": [""], "seed": -5}, 200, None),
    ],
)
async def test_a_parameter_that_would_change_the_answer_is_refused_by_name(
    client: httpx2.AsyncClient, edge: Edge, change: dict[str, Any], status: int, param: str | None
) -> None:
    got = await ask(client, edge, chat("Where is it?") | change, "Here.")
    assert got.status_code == status
    if param is not None:
        assert got.json()["error"]["param"] == param
        assert edge.asked == []


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
TEXT = {"type": "text", "text": "Where is it?"}
ASKED = {"role": "user", "content": "Where is it?"}


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
@pytest.mark.parametrize(
    ("messages", "ignored"),
    [
        ([ASKED, CALL, {"role": "tool", "tool_call_id": "1", "content": "{}"}], "tool"),
        ([ASKED, {"role": "function", "name": "f", "content": "{}"}], "function"),
        ([ASKED, {"type": "function_call", "name": "f"}, {"type": "function_call_output"}],
         "function_call, function_call_output"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}, TEXT]}],
         "image_url"),
        ([{"role": "user", "content": [{"type": "input_text", "text": "Where is it?"}, {"type": "input_file"}]}],
         "input_file"),
        ([{"role": "user", "content": [{"type": "image_url"}]}, ASKED], "image_url"),
        ([{"role": "system", "content": [{"type": "input_file"}]}, ASKED], "input_file"),
        ([{"role": "user", "content": [{"type": "x\r\ny: é"}, TEXT]}], "content"),
        ([{"role": "user", "content": TEXT}], None),
        ([{"role": "user", "content": [{"type": "refusal", "refusal": "Where is it?"}]}], None),
    ],
)  # fmt: skip
async def test_parts_other_than_text_are_left_out_and_named(
    client: httpx2.AsyncClient, edge: Edge, path: str, messages: list[Any], ignored: str | None
) -> None:
    field = "messages" if "chat" in path else "input"
    got = await ask(client, edge, {"model": MODEL, field: messages}, "Here.", path=path)
    assert (got.status_code, got.headers.get("replyline-ignored")) == (200, ignored)
    assert (edge.asked[0].input, edge.asked[0].turns or ()) == ("Where is it?", ())


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_a_picture_costs_no_later_question(client: httpx2.AsyncClient, edge: Edge, path: str) -> None:
    """A chat sends its whole history: one that is refused once is refused for ever."""
    messages = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"role": "assistant", "content": "I read text only."},
        {"role": "user", "content": "Where is it?"},
    ]
    field = "messages" if "chat" in path else "input"
    got = await ask(client, edge, {"model": MODEL, field: messages}, "Here.", path=path)
    assert (got.status_code, got.headers["replyline-ignored"]) == (200, "image_url")
    assert edge.asked[0].turns == (Said(user="", assistant="I read text only."),)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/chat/completions", 405),
        ("POST", "/chats", 404),
        ("GET", "/models/x", 404),
        ("POST", "/responses/compact", 404),
    ],
)
async def test_every_path_answers_in_json(client: httpx2.AsyncClient, method: str, path: str, status: int) -> None:
    got = await client.request(method, path)
    assert (got.status_code, got.json()["error"]["type"]) == (status, "invalid_request_error")
    assert "GET /" in got.json()["error"]["message"]


async def test_models_are_listed_by_their_names(client: httpx2.AsyncClient) -> None:
    assert [model["id"] for model in (await client.get("/models")).json()["data"]] == [MODEL]
    assert (await client.get(f"/models/{MODEL}")).json()["object"] == "model"


# --- no answer, and when to retry


async def test_a_draining_gateway_says_so_in_the_status(client: httpx2.AsyncClient, edge: Edge) -> None:
    edge.gateway.asking.answering.admission_gate.draining = True
    got = await client.post("/chat/completions", json=chat("Where is it?", stream=True))
    assert (got.status_code, got.json()["error"]["type"]) == (503, "overloaded_error")
    assert int(got.headers["retry-after"]) >= 1


async def test_a_client_over_its_rate_is_told_when_to_retry(client: httpx2.AsyncClient, edge: Edge) -> None:
    edge.quotas.used_up = {"ask"}
    got = await client.post("/chat/completions", json=chat("Where is it?"))
    assert (got.status_code, got.headers["retry-after-ms"]) == (429, "9")


async def test_the_faq_answers_with_200_and_its_source(client: httpx2.AsyncClient, edge: Edge) -> None:
    edge.kafka_is_away = True
    got = await client.post("/chat/completions", json=chat("How do I return an item?"))
    assert (got.status_code, got.json()["source"]) == (200, "faq")
    assert got.headers["replyline-source"] == "faq"


@pytest.mark.parametrize("stream", [False, True])
async def test_without_capacity_the_client_is_told_to_retry(
    client: httpx2.AsyncClient, edge: Edge, *, stream: bool
) -> None:
    edge.kafka_is_away = True
    got = await client.post("/chat/completions", json=chat("Xyzzy plugh?", stream=stream))
    assert (got.status_code, got.json()["error"]["code"]) == (503, "busy")
    assert "retry-after" in got.headers


async def test_the_clients_patience_is_the_deadline(client: httpx2.AsyncClient, edge: Edge) -> None:
    headers = {"x-stainless-read-timeout": "0.3"}
    got = await client.post("/chat/completions", json=chat("Xyzzy plugh?"), headers=headers)
    assert (got.status_code, got.headers["x-should-retry"]) == (504, "false")
    asked = edge.asked[0]
    assert asked.deadline_unix_ms is not None
    assert asked.created_unix_ms is not None
    assert asked.deadline_unix_ms - asked.created_unix_ms == 100


async def test_an_oversized_body_is_not_read_to_its_end(client: httpx2.AsyncClient) -> None:
    got = await client.post("/chat/completions", content=b" " * 70_000)
    assert (got.status_code, got.json()["error"]["code"]) == (413, "body_too_large")


# --- the question's owner


async def test_a_retry_is_computed_once(client: httpx2.AsyncClient, edge: Edge) -> None:
    body, key = chat("Where is it?"), {"idempotency-key": "a-key-of-its-own"}
    first = await ask(client, edge, body, "Here.", **key)
    again = await client.post("/chat/completions", json=body, headers=key)
    assert again.json()["id"] == first.json()["id"]
    assert len(edge.asked) == 1
    other = await ask(client, edge, body, "There.", **{"x-stainless-retry-count": "1"})
    assert other.json()["choices"][0]["message"]["content"] == "There."
    assert len(edge.asked) == 2


async def test_a_retry_takes_over_its_first_trys_answer(client: httpx2.AsyncClient, edge: Edge) -> None:
    body, key = chat("Where is it?"), {"idempotency-key": "a-key-of-its-own"}
    first = asyncio.ensure_future(client.post("/chat/completions", json=body, headers=key))
    await until(lambda: edge.asked)
    retry = asyncio.ensure_future(client.post("/chat/completions", json=body, headers=key))
    assert (await first).status_code == 409
    await answer(edge, "Here.")
    assert (await retry).json()["choices"][0]["message"]["content"] == "Here."
    assert len(edge.asked) == 1


async def test_two_customers_with_the_same_words_are_two(client: httpx2.AsyncClient, edge: Edge) -> None:
    asking = [asyncio.ensure_future(client.post("/chat/completions", json=chat("Hi there?"))) for _ in range(2)]
    await until(lambda: len(edge.asked) == 2)
    for asked in edge.asked:
        await until(lambda name=asked.id: edge.gateway.inflight.get(name).answer.created)  # type: ignore[union-attr]
        edge.receive_replies([done(asked.id, asked.id, session_id=asked.session_id)])
    texts = {(await each).json()["choices"][0]["message"]["content"] for each in asking}
    assert texts == {asked.id for asked in edge.asked}


@pytest.mark.parametrize("named", [{}, {"replyline-session": "s"}])
async def test_a_key_is_good_for_one_question(client: httpx2.AsyncClient, edge: Edge, named: dict[str, str]) -> None:
    headers = {"idempotency-key": "a-key-of-its-own", **named}
    first = await ask(client, edge, chat("Where is it?"), "Here.", **headers)
    again = await ask(client, edge, chat("Where is it?"), "", **headers)
    assert again.json()["choices"] == first.json()["choices"]
    got = await ask(client, edge, chat("Where am I?"), "", **headers)
    assert (got.status_code, got.json()["error"]["code"]) == (409, "key_reused")
    assert got.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("named", "session"),
    [
        ({"metadata": {"session_id": "conv-7"}}, "conv-7"),
        ({"metadata": {"session_id": "subject:x"}}, None),
        ({}, None),
    ],
)
async def test_a_conversation_has_the_id_its_client_gives(
    client: httpx2.AsyncClient, edge: Edge, named: dict[str, Any], session: str | None
) -> None:
    """Under it the next question finds what was computed."""
    for text in ("One?", "Two?"):
        await ask(client, edge, chat(text) | named, "Yes.")
    names = [asked.session_id for asked in edge.asked]
    assert (names[0] == names[1]) is bool(named)
    assert session in {None, names[0]}
    assert "ada" not in names[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("headers", [[], [(b"idempotency-key", b"k")]])
async def test_an_answer_whose_client_gives_up_is_cancelled_unless_it_has_a_key(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, headers: list[tuple[bytes, bytes]], *, stream: bool
) -> None:
    monkeypatch.setattr(exchanges, "_GRACE_S", 0.0)
    door = door_of(edge)
    said = [{"type": "http.request", "body": json.dumps(chat("Where is it?", stream=stream)).encode()}]
    gone = asyncio.Event()

    async def receive() -> dict[str, object]:
        if not said:
            await gone.wait()
        return said.pop(0) if said else {"type": "http.disconnect"}

    async def send(message: object) -> None:
        """The client reads nothing."""

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": headers}
    asking = asyncio.ensure_future(door.app()(scope, receive, send))
    await until(lambda: edge.asked and edge.gateway.inflight.get(edge.asked[0].id).answer.created)  # type: ignore[union-attr]
    gone.set()
    await asking
    if headers:
        await quiet()
        assert (edge.cancelled, len(edge.gateway.inflight)) == ([], 1)
    else:
        await until(lambda: edge.cancelled)
    assert edge.gateway.connections._open == {}
    await door.http.exchanges.stop()
