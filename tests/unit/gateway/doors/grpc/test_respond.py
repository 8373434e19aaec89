"""One question over gRPC: its messages, its deadline, its retries, its end; and the rest of an answer."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.exchange import exchanges, question
from tests.support import tokens
from tests.support.fakes.gateways import MINUTE_MS, Edge, delta, quiet, until
from tests.support.fakes.grpc_doors import Sent, all_of, kinds, refused, serving, text_of
from tests.support.fakes.openai_doors import answer

KEY: Sent = (("idempotency-key", "once-and-only-once"),)
SECRET = "my-card-is-4111"


async def test_a_grpc_answer_equals_the_websockets() -> None:
    edge = Edge()
    async with serving(edge) as client:
        reading = asyncio.ensure_future(all_of(client.respond(session_id="s-1", max_output_tokens=9)))
        await until(lambda: edge.asked)
        await answer(edge, "Here it is.", "Here ", "it is.")
        messages = await reading
    created, done = messages[0].session_created, messages[-1].response_done
    assert kinds(messages)[:3] == ["session_created", "response_created", "response_output_text_delta"]
    assert (created.session_id, created.heartbeat_s) == ("s-1", 0)
    assert (text_of(messages), done.response.output_text) == ("Here it is.", "Here it is.")
    assert (done.response.status, done.response.source) == (v1.STATUS_COMPLETED, v1.SOURCE_MODEL)
    assert edge.asked[0].max_output_tokens == 9


@pytest.mark.parametrize(
    ("limit_s", "field", "at_most_ms", "above_ms"),
    [(30, None, 30_000, 10_000), (90, None, MINUTE_MS, MINUTE_MS - 1), (30, 80_000, 30_000, 10_000), (30, 9, 9, 8)],
)
async def test_a_calls_deadline_shortens_its_answers_deadline(
    limit_s: float, field: int | None, at_most_ms: int, above_ms: int
) -> None:
    edge = Edge()
    async with serving(edge) as client:
        call = client.respond(timeout=limit_s, deadline_ms=field)
        await until(lambda: edge.asked)
        (asked,) = edge.asked
        assert asked.deadline_unix_ms is not None
        assert asked.created_unix_ms is not None
        assert above_ms < asked.deadline_unix_ms - asked.created_unix_ms <= at_most_ms
        call.cancel()


async def test_strangers_evict_no_first_try() -> None:
    edge = Edge()
    async with serving(edge, tokens.gate()) as client:
        for sent in ((), (("authorization", "Bearer x.y.z"),)):
            status, _ = await refused(client.respond("Who?", metadata=sent))
            assert status is grpc.StatusCode.UNAUTHENTICATED
        assert not client.door.exchanges._own._tries


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an answer end this long before its client gives up, enough for a slow machine."""
    monkeypatch.setattr(question, "_MARGIN_MS", 10_000)


@pytest.mark.usefixtures("early")
async def test_the_faq_answers_before_its_client_gives_up() -> None:
    edge = Edge()
    async with serving(edge) as client:
        messages = await all_of(client.respond("How do I return an item?", timeout=11))
    assert messages[-1].response_done.response.source == v1.SOURCE_FAQ
    assert text_of(messages) == messages[-1].response_done.response.output_text


@pytest.mark.usefixtures("early")
async def test_a_question_without_an_answer_gets_a_status() -> None:
    edge = Edge()
    async with serving(edge) as client:
        status, details = await refused(client.respond("xyzzy plugh", timeout=11))
    assert status is grpc.StatusCode.DEADLINE_EXCEEDED
    assert details.code == status.value[0]


@pytest.mark.parametrize("key", [(), KEY])
async def test_a_cancelled_call_cancels_its_answer_unless_it_has_a_key(
    monkeypatch: pytest.MonkeyPatch, key: Sent
) -> None:
    monkeypatch.setattr(exchanges, "_GRACE_S", 0.05)
    edge = Edge()
    async with serving(edge) as client:
        call = client.respond(metadata=key)
        await until(lambda: edge.asked)
        call.cancel()
        if not key:
            await until(lambda: edge.cancelled == [edge.asked[0].id])
        else:
            await asyncio.sleep(0.2)
            assert edge.cancelled == []
        await until(lambda: not edge.gateway.connections._open)


async def test_a_retry_with_its_key_is_computed_once() -> None:
    edge = Edge()
    async with serving(edge) as client:
        first = client.respond(metadata=KEY)
        await until(lambda: edge.asked)
        first.cancel()
        again = asyncio.ensure_future(all_of(client.respond(metadata=KEY)))
        await answer(edge, "Here.")
        assert text_of(await again) == "Here."
        assert len(edge.asked) == 1
        status, _ = await refused(client.respond("Something else?", metadata=KEY, session_id=edge.asked[0].session_id))
    assert status is grpc.StatusCode.ABORTED


async def test_a_returning_client_gets_the_rest() -> None:
    edge = Edge()
    async with serving(edge) as client:
        call = client.respond(session_id="s-1")
        await until(lambda: edge.asked)
        asked = edge.asked[0]
        await until(lambda: edge.gateway.inflight.get(asked.id).answer.created)  # type: ignore[union-attr]
        edge.receive_replies([delta(asked.id, "Here ", session_id="s-1")])
        seen = [await call.read() for _ in range(3)]
        call.cancel()
        rest = asyncio.ensure_future(all_of(client.resume("s-1", seen[-1].response_output_text_delta.cursor)))
        await until(lambda: edge.gateway.inflight.get(asked.id).connection_id is not None)  # type: ignore[union-attr]
        await answer(edge, "Here it is.", "it is.", after="Here ")
        messages = await rest
        assert messages[0].session_created.recovered
        assert [each.response_output_text_delta.seq for each in messages[1:-1]] == [1]
        assert text_of(messages) == "it is."
        for session, cursor in (("s-1", "AAAA"), ("s-2", seen[-1].response_output_text_delta.cursor), ("s-1", "")):
            assert (await refused(client.resume(session, cursor)))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_client_that_does_not_read_is_dropped() -> None:
    edge = Edge()
    async with serving(edge, slow_consumer_s=0.2) as client:
        call = client.respond(session_id="s-1")
        await until(lambda: edge.asked)
        text = "y" * 9_000_000
        await answer(edge, text, text)
        await until(lambda: not edge.gateway.connections._open)
        status, _ = await refused(call)
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "session_id": st.text(max_size=70) | st.just(SECRET),
        "input": st.text() | st.just(SECRET),
        "temperature": st.floats(),
        "seed": st.integers(-5, 5),
        "deadline_ms": st.integers(-5, 2**62),
        "stop": st.lists(st.text(max_size=80), max_size=6),
        "metadata": st.dictionaries(st.text(max_size=70), st.text(max_size=5), max_size=3),
        "turns": st.lists(st.builds(v1.Said, user=st.text(), assistant=st.text()), max_size=3),
        "traceparent": st.text(),
        "instructions": st.just(SECRET),
    },
)
REQUESTS = st.binary() | FIELDS.map(lambda fields: v1.RespondRequest(**fields).SerializeToString())
OUR_FAULT = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


@settings(max_examples=20, deadline=None)
@given(requests=st.lists(REQUESTS, min_size=5, max_size=5))
async def test_no_request_breaks_the_door(requests: list[bytes]) -> None:
    """Kafka is away, so that each is answered immediately."""
    edge = Edge(kafka_is_away=True)
    async with serving(edge) as client:
        for request in requests:
            for method in ("Respond", "Resume"):
                call = client.call(method, request)
                with suppress(grpc.aio.AioRpcError):
                    await all_of(call)
                assert await call.code() not in OUR_FAULT
        sound = await all_of(client.respond("How do I return an item?"))
        assert sound[-1].response_done.response.source == v1.SOURCE_FAQ
        await quiet()
    assert len(edge.gateway.inflight) == 0


async def test_nothing_of_a_refused_request_is_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    requests: list[Any] = [v1.RespondRequest(input=SECRET, **{name: SECRET}) for name in ("session_id", "traceparent")]
    requests += [v1.RespondRequest(input=SECRET, stop=[SECRET] * 9), v1.RespondRequest(session_id=SECRET)]
    async with serving(Edge(kafka_is_away=True)) as client:
        for request in (*requests, SECRET.encode()):
            for method in ("Respond", "Resume"):
                with suppress(grpc.aio.AioRpcError):
                    await all_of(client.call(method, request, (("x-secret", SECRET),)))
    assert SECRET not in "".join(capfd.readouterr())
