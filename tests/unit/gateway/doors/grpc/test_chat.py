"""A whole session over one call in both directions."""

import asyncio
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.doors.grpc import chat as chat_door
from gateway.doors.grpc.messages import client_message, read
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from shared.errors import ProtocolError
from shared.wire.messages import ClientMessage
from tests.support.fakes.gateways import Edge, until
from tests.support.fakes.grpc_doors import all_of, kinds, refused, said, serving, text_of
from tests.support.fakes.openai_doors import answer

HELLO = said(session_start=v1.SessionStart(session_id="s-1"))
QUESTION = said(response_create=v1.ResponseCreate(event_id="e-1", input="Where is it?"))


QUESTIONS = st.builds(
    v1.ResponseCreate,
    event_id=st.text(max_size=70),
    input=st.text(),
    temperature=st.none() | st.floats(),
    seed=st.none() | st.integers(-5, 5),
    stop=st.lists(st.text(), max_size=6),
    metadata=st.dictionaries(st.text(), st.text(), max_size=3),
    turns=st.lists(st.builds(v1.Said, user=st.text()), max_size=3),
)
FEEDBACK = st.builds(v1.Feedback, response_id=st.text(), rating=st.integers(-9, 9), resolved=st.none() | st.booleans())


def bytes_of(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


async def heard(chat: Any, kind: str) -> Any:
    """Return the next message, which is of that kind."""
    message = await chat.read()
    assert message is not grpc.aio.EOF
    assert message.WhichOneof("message") == kind
    return getattr(message, kind)


async def test_a_session_asks_cancels_and_deletes() -> None:
    edge = Edge()
    async with serving(edge) as client:
        chat = client.chat()
        await chat.write(HELLO)
        assert (await heard(chat, "session_created")).session_id == "s-1"
        await chat.write(QUESTION)
        opened = await heard(chat, "response_created")
        assert (opened.event_id, opened.response_id) == ("e-1", edge.asked[0].id)
        await chat.write(said(response_cancel=v1.ResponseCancel(response_id=opened.response_id)))
        assert (await heard(chat, "response_done")).response.status == v1.STATUS_CANCELLED
        await chat.write(said(session_delete=v1.SessionDelete()))
        assert (await heard(chat, "session_deleted")).session_id == "s-1"
        await chat.done_writing()
        assert await all_of(chat) == []
        assert await chat.code() is grpc.StatusCode.OK
        await until(lambda: not edge.gateway.connections._open)


async def test_a_client_that_closes_its_sending_side_is_answered() -> None:
    edge = Edge()
    async with serving(edge) as client:
        chat = client.chat()
        for message in (HELLO, QUESTION):
            await chat.write(message)
        await chat.done_writing()
        await until(lambda: edge.asked)
        await answer(edge, "Here.")
        assert text_of(await all_of(chat)) == "Here."


@pytest.mark.parametrize(
    ("message", "last"),
    [
        (None, "session_created"),
        (said(session_delete=v1.SessionDelete()), "session_deleted"),
        (said(handoff_request=v1.HandoffRequest()), "error"),  # no person is reached
        (said(response_create=v1.ResponseCreate(event_id="e", input="I want a human agent")), "response_done"),
        (said(response_cancel=v1.ResponseCancel(response_id="none")), "error"),
    ],
)
async def test_a_call_ends_with_the_last_reply_that_is_due(
    monkeypatch: pytest.MonkeyPatch, message: Any, last: str
) -> None:
    monkeypatch.setattr(chat_door, "_TICK_S", 3_600.0)
    async with serving(Edge(people=True)) as client, asyncio.timeout(60):
        chat = client.chat()
        for each in filter(None, (HELLO, message)):
            await chat.write(each)
        await chat.done_writing()
        assert kinds(await all_of(chat))[-1] == last


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        (b"\xff\xff", "bad_protobuf", ""),
        (b"", "unknown_type", "message"),
        (said(response_create=v1.ResponseCreate(input="Where?")), "invalid_field", "event_id"),
        (said(feedback=v1.Feedback(response_id="r", rating=99)), "invalid_field", "rating"),
        (said(handoff_request=v1.HandoffRequest(language=v1.LANGUAGE_ZH)), "handoff_not_offered", ""),
        (HELLO, "already_started", ""),
    ],
)
async def test_a_refusal_is_an_error_and_the_session_continues(message: Any, code: str, param: str) -> None:
    async with serving(Edge()) as client:
        chat = client.chat()
        await chat.write(HELLO)
        await heard(chat, "session_created")
        await chat.write(message)
        error = (await heard(chat, "error")).error
        assert (error.code, error.param) == (code, param)
        await chat.write(said(session_delete=v1.SessionDelete()))
        await heard(chat, "session_deleted")
        chat.cancel()


@given(
    st.binary() | st.builds(v1.ClientMessage, response_create=QUESTIONS, feedback=st.none() | FEEDBACK).map(bytes_of)
)
def test_bytes_are_a_message_or_the_protocols_error(data: bytes) -> None:
    try:
        message: object = client_message(read(data, v1.ClientMessage))
    except ProtocolError as error:
        message = error
    assert isinstance(message, ClientMessage | ProtocolError)


async def test_a_session_without_its_hello_is_ended() -> None:
    async with serving(Edge()) as client:
        chat = client.chat()
        await chat.write(QUESTION)
        assert (await refused(chat))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_session_resumes_an_answer_that_a_unary_call_began() -> None:
    edge = Edge()
    async with serving(edge) as client:
        first = client.respond(session_id="s-1")
        await heard(first, "session_created")
        cursor = (await heard(first, "response_created")).cursor
        first.cancel()
        again = client.chat()
        await again.write(said(session_start=v1.SessionStart(session_id="s-1", resume=v1.Resume(cursor=cursor))))
        assert (await heard(again, "session_created")).recovered
        await answer(edge, "Here.")
        await again.done_writing()
        messages = await all_of(again)
        assert (kinds(messages)[-1], text_of(messages)) == ("response_done", "Here.")
