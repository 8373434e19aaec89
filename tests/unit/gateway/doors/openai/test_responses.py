"""Responses over the door: their events, their state, and another gateway that continues them."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.doors.openai.bodies import responses_question
from gateway.doors.openai.names import ResponseName, read_response_name
from gateway.doors.openai.responses import ResponseFields, ResponsesEncoder
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.wire.messages import Said
from shared.wire.outcome import ErrorDetail, Response, Timings, Usage
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateways import Edge, delta, until
from tests.support.fakes.openai_doors import BASE, answer, ask, door_of

EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def body(text: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "replyline", "input": text} | fields


def events(text: str) -> list[dict[str, Any]]:
    blocks = [block.split("\n") for block in text.split("\n\n") if block]
    assert blocks.pop() == ["data: [DONE]"]
    found = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in found]
    return found


async def made(client: httpx2.AsyncClient, edge: Edge, said: str = "Who?", text: str = "Ada.", **fields: Any) -> Any:
    got = await ask(client, edge, body(said, **fields), text, path="/responses")
    assert got.status_code == 200, got.text
    return got.json()


def remember(edge: Edge, text: str) -> None:
    """The worker writes the newest question's turn."""
    asked = edge.asked[-1]
    edge.history.remembered.append(Turn(request_id=asked.id, user=asked.input, output_text=text, source="model"))


@pytest.mark.parametrize("kind", ["reasoning", "function_call_output", "custom"])
def test_only_parts_of_messages_are_read_in_a_messages_place(kind: str) -> None:
    said = [{"role": "user", "content": "Where is it?"}, {"type": kind, "text": "The user wants a refund"}]
    assert responses_question(json.dumps(body(said)).encode(), None).input == "Where is it?"
    parts = [{"type": "input_text", "text": "Where?"}, {"type": "output_text", "text": "Here."}, {"text": "And now?"}]
    question = responses_question(json.dumps(body(parts)).encode(), None)
    assert (question.input, question.turns) == ("And now?", (Said(user="Where?", assistant="Here."),))


async def test_every_response_has_the_common_fields(client: httpx2.AsyncClient, edge: Edge) -> None:
    got = await made(client, edge, metadata={"a": "b"})
    assert len(got) >= 31
    assert (got["status"], got["output"][0]["content"][0]["text"]) == ("completed", "Ada.")
    assert got["metadata"] == {"a": "b", "source": "model", "reason": "stop"}


async def test_a_responses_events_are_numbered_without_a_gap(client: httpx2.AsyncClient, edge: Edge) -> None:
    asking = asyncio.ensure_future(client.post("/responses", json=body("Who?", stream=True)))
    await until(lambda: edge.asked)
    await answer(edge, "Ada Lovelace.", "Ada L", "ovelace.")
    told = events((await asking).text)
    assert list(dict.fromkeys(event["type"] for event in told)) == EVENTS
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert "".join(event.get("delta", "") for event in told) == "Ada Lovelace."
    assert told[0]["response"]["output"] == []
    assert len({event["item_id"] for event in told if "item_id" in event}) == 1
    assert told[-1]["response"]["output"][0]["id"] == told[4]["item_id"]


ASKED = ResponseFields(name="resp_" + "0" * 24, model="m", created_unix_s=1)


def told_in(pieces: list[str], after: int = -1) -> bytes:
    encoder = ResponsesEncoder(asked=ASKED, after=after, now_unix_s=2)
    text = "".join(pieces)
    end = Response(
        id=ASKED.name,
        status="completed",
        reason="stop",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
    )
    return encoder.opened(ASKED.name) + b"".join(map(encoder.text, pieces)) + encoder.ended(end)


@given(pieces=st.lists(st.text(max_size=9), max_size=6), after=st.integers(-1, 40))
def test_the_same_text_gives_the_same_events_in_any_split(pieces: list[str], after: int) -> None:
    """So a number means the same at every gateway, and the events after it are a tail of the whole."""
    whole = told_in(["".join(pieces)])
    assert told_in(pieces) == whole
    assert told_in(pieces, after).split(b"\n\n") == whole.split(b"\n\n")[after + 1 :] or after >= whole.count(
        b"event: "
    )


@given(pieces=st.lists(st.text(max_size=9), max_size=6))
def test_the_deltas_of_a_failed_response_are_all_of_its_text(pieces: list[str]) -> None:
    encoder = ResponsesEncoder(asked=ASKED, now_unix_s=2)
    error = ErrorDetail(type="server_error", code="cancelled", message="cancelled", retryable=False)
    sent = b"".join(map(encoder.text, pieces)) + encoder.failed(error)
    told = events(sent.decode())
    deltas = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    output = told[-1]["response"]["output"]
    assert told[-1]["type"] == "response.failed"
    assert "".join(deltas) == "".join(part["text"] for item in output for part in item["content"])
    assert "".join(deltas) == "".join(pieces)


@given(
    st.from_regex(r"resp_[0-9a-f]{24}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:\-]{0,63}", fullmatch=True),
    st.from_regex(r"([A-Za-z0-9_\-]{4}){1,9}", fullmatch=True),
    st.booleans(),
)
def test_a_response_id_decodes_to_what_was_encoded(response_id: str, session: str, cursor: str, goes_on: bool) -> None:
    name = ResponseName(response_id, session, cursor, goes_on)
    if session.startswith("subject:"):
        return
    assert read_response_name(str(name), "id") == name


@given(st.text(max_size=60) | st.text().map(lambda text: "resp_" + "0" * 24 + ".c" + text))
def test_an_invented_response_id_is_unknown(name: str) -> None:
    try:
        found = read_response_name(name, "id")
    except ProtocolError as error:
        told = error.code
    else:
        told = "response_not_found" if str(found) == name else ""
    assert told == "response_not_found"


# --- state


async def test_a_conversation_continues_from_its_last_response(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = await made(client, edge)
    remember(edge, "Ada.")
    second = await made(client, edge, "And where?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    one, other = edge.asked
    assert (one.session_id, one.turns) == (other.session_id, ()) or other.turns is None
    remember(edge, "There.")
    fork = await client.post("/responses", json=body("Or?", previous_response_id=first["id"]))
    assert (fork.status_code, fork.json()["error"]["code"]) == (400, "not_the_last")


async def test_a_conversation_sent_by_its_client_is_not_continued_from_memory(
    client: httpx2.AsyncClient, edge: Edge
) -> None:
    told = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    first = await made(client, edge, told)  # type: ignore[arg-type]
    assert edge.asked[0].turns == (Said(user="user", assistant="assistant"),)
    got = await client.post("/responses", json=body("And?", previous_response_id=first["id"]))
    assert got.json()["error"]["code"] == "history_not_kept"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": "c", "previous_response_id": "r"}, "previous_response_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        (
            {"conversation": "c", "input": [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]},
            "input",
        ),
        ({"background": True, "store": False}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
async def test_mutually_exclusive_parameters_are_refused(
    client: httpx2.AsyncClient, fields: dict[str, Any], param: str
) -> None:
    got = await client.post("/responses", json=body("?") | fields)
    assert (got.status_code in {400, 404}, got.json()["error"]["param"]) == (True, param)


async def test_a_response_is_fetched_while_in_memory_and_from_history(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = await made(client, edge, conversation="conv-1")
    got = (await client.get(f"/responses/{first['id']}")).json()
    assert (got["output"], got["status"]) == (first["output"], "completed")
    remember(edge, "Ada.")
    elsewhere = Edge(partition=1, history=edge.history)
    transport = httpx2.ASGITransport(app=door_of(elsewhere).app())
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as other:
        assert (await other.get(f"/responses/{first['id']}")).json()["output"] == first["output"]
        streamed = events((await other.get(f"/responses/{first['id']}?stream=true&starting_after=4")).text)
        assert (streamed[0]["sequence_number"], streamed[0]["delta"]) == (5, "da.")


async def test_a_killed_gateways_stream_resumes_at_another(client: httpx2.AsyncClient, edge: Edge) -> None:
    """In the middle of the text, after the last received event."""
    got = (await client.post("/responses", json=body("Who?", background=True))).json()
    assert got["status"] == "in_progress"
    asked = edge.asked[0]
    elsewhere = Edge(partition=1, history=edge.history)
    elsewhere.follower.stands = [delta(asked.id, "Ada Love", session_id=asked.session_id)]
    transport = httpx2.ASGITransport(app=door_of(elsewhere).app())
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as other:
        url = f"/responses/{got['id']}?stream=true&starting_after=5"
        following = asyncio.ensure_future(other.get(url))
        await until(lambda: (entry := elsewhere.gateway.inflight.get(asked.id)) is not None and entry.answer.chars)
        await answer(elsewhere, "Ada Lovelace.", asked=asked, after="Ada Love")
        told = events((await following).text)
    assert told[0]["sequence_number"] == 6
    assert "".join(event.get("delta", "") for event in told) == "Ada Lovelace."[5:]
    assert told[-1]["type"] == "response.completed"


async def test_fetching_a_response_does_not_detach_its_stream(client: httpx2.AsyncClient, edge: Edge) -> None:
    name = (await client.post("/responses", json=body("Who?", background=True))).json()["id"]
    asked = edge.asked[0]
    following = asyncio.ensure_future(client.get(f"/responses/{name}?stream=true"))
    await until(lambda: edge.gateway.inflight.get(asked.id).connection_id)  # type: ignore[union-attr]
    edge.receive_replies([delta(asked.id, "Ada", session_id=asked.session_id)])
    seen = (await client.get(f"/responses/{name}")).json()
    assert (seen["status"], seen["output"][0]["content"][0]["text"]) == ("in_progress", "Ada")
    await answer(edge, "Ada.", asked=asked, after="Ada")
    assert events((await following).text)[-1]["type"] == "response.completed"


async def test_while_redis_is_away_no_response_is_reported_unknown(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = await made(client, edge)
    edge.gateway.inflight.forget_before(SessionKey("demo", edge.asked[0].session_id), 2**52)
    edge.history.away = True
    item = {"type": "item_reference", "id": first["output"][0]["id"]}
    for asked in (
        body("?", previous_response_id=first["id"]),
        body([item, {"role": "user", "content": "?"}]),
    ):
        got = await client.post("/responses", json=asked)
        assert (got.status_code, got.json()["error"]["code"]) == (503, "history_unavailable")


async def test_a_response_is_cancelled_by_its_id(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = (await client.post("/responses", json=body("Who?", background=True))).json()
    got = (await client.post(f"/responses/{first['id']}/cancel")).json()
    assert got["status"] == "cancelled"
    await until(lambda: edge.cancelled)
    assert edge.cancelled[0] == edge.asked[0].id


async def test_a_deleted_response_is_unknown_from_then_on(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = await made(client, edge)
    assert (await client.delete(f"/responses/{first['id']}")).json()["deleted"]
    for got in (
        await client.get(f"/responses/{first['id']}"),
        await client.post("/responses", json=body("?", previous_response_id=first["id"])),
    ):
        assert (got.status_code, got.json()["error"]["code"]) == (404, "response_not_found")


async def test_a_response_that_is_not_stored_cannot_be_named(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = await made(client, edge, store=False)
    assert (await client.get(f"/responses/{first['id']}")).status_code == 404


async def test_a_conversation_is_made_and_erased(client: httpx2.AsyncClient, edge: Edge) -> None:
    name = (await client.post("/conversations", json={})).json()["id"]
    await made(client, edge, conversation={"id": name})
    assert edge.asked[0].session_id == name
    assert (await client.get(f"/conversations/{name}")).json()["object"] == "conversation"
    assert (await client.delete(f"/conversations/{name}")).json()["deleted"]
    assert [erased.session_id for erased in edge.told_all] == [name]
    assert (await client.get("/conversations/mine")).status_code == 404


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/cancel")])
async def test_a_response_that_is_looked_up_is_charged(
    client: httpx2.AsyncClient, edge: Edge, method: str, path: str
) -> None:
    name = (await made(client, edge))["id"]
    edge.quotas.used_up = {"resume"}
    assert (await client.request(method, f"/responses/{name}{path}")).status_code == 429


async def test_an_answer_that_is_named_is_charged_as_looked_up(client: httpx2.AsyncClient, edge: Edge) -> None:
    first = await made(client, edge)
    edge.quotas.used_up = {"resume"}
    got = await client.post("/responses", json=body([user("Who?"), item_of(first), user("When?")]))
    assert got.status_code == 429


def item_of(response: Any) -> dict[str, str]:
    """A response's message, named as the AI SDK names it in the next request."""
    return {"type": "item_reference", "id": response["output"][0]["id"]}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("form", ["item_reference", "id alone", "the whole item", "null fields"])
async def test_an_answer_of_this_gateway_is_accepted_as_input(
    client: httpx2.AsyncClient, edge: Edge, form: str
) -> None:
    """AI SDK's default model sends it from the second turn on."""
    first = await made(client, edge)
    remember(edge, "Ada.")
    item: dict[str, Any] = item_of(first)
    if form == "id alone":
        del item["type"]
    elif form == "the whole item":
        item = first["output"][0]
    elif form == "null fields":
        item |= {"role": None, "content": None}
    second = await made(client, edge, [user("Who?"), item, user("And when?")], "1815.")  # type: ignore[arg-type]
    assert second["output"][0]["content"][0]["text"] == "1815."
    assert edge.asked[1].input == "And when?"
    if form == "the whole item":
        assert edge.asked[1].turns == (Said(user="Who?", assistant="Ada."),)
    else:
        assert (edge.asked[1].turns, edge.asked[1].session_id) == (None, edge.asked[0].session_id)


async def test_an_earlier_answer_keeps_its_text(client: httpx2.AsyncClient, edge: Edge) -> None:
    """A customer edits an earlier question: the conversation continues from the client's version, not from the stored
    one.
    """
    first = await made(client, edge)
    remember(edge, "Ada.")
    await made(client, edge, "When?", "1815.", previous_response_id=first["id"])
    remember(edge, "1815.")
    got = await ask(client, edge, body([user("Who?"), item_of(first), user("Where?")]), "London.", path="/responses")
    assert (got.status_code, got.headers.get("replyline-ignored")) == (200, None)
    assert edge.asked[2].turns == (Said(user="Who?", assistant="Ada."),)
    assert edge.asked[2].session_id != edge.asked[0].session_id


@pytest.mark.parametrize("named", ["msg_1", "msg_" + "0" * 24 + ".csome-session", "rs_1", "x" * 20_000])
async def test_an_answer_that_is_not_remembered_is_left_out_and_named(
    client: httpx2.AsyncClient, edge: Edge, named: str
) -> None:
    asked = body([user("Who?"), {"type": "item_reference", "id": named}, user("When?")])
    got = await ask(client, edge, asked, "1815.", path="/responses")
    assert (got.status_code, got.headers["replyline-ignored"]) == (200, "item_reference")
    assert edge.asked[0].turns == (Said(user="Who?", assistant=""),)


async def test_an_item_reference_without_an_id_is_refused_by_its_field(client: httpx2.AsyncClient) -> None:
    got = await client.post("/responses", json=body([user("Who?"), {"type": "item_reference"}, user("When?")]))
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input[1].id")


async def test_reasoning_and_refusals_of_an_answer_are_accepted_as_input(
    client: httpx2.AsyncClient, edge: Edge
) -> None:
    asked = [
        user("Who?"),
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "refusal", "refusal": "No."}],
        },
        user("When?"),
    ]
    await made(client, edge, asked)  # type: ignore[arg-type]
    assert edge.asked[0].turns == (Said(user="Who?", assistant="No."),)
