"""A question goes through the whole system and its answer comes back, token by token."""

import asyncio

import pytest

from tests.support.shared_system import STANDARD
from tests.support.system import Service, System, eventually
from tests.support.wire import JSON, MSGPACK, Client, Form

QUESTION = "How do I return an item that I do not like?"
TOKENS = 300  # a second and a half: longer than any machine pauses


pytestmark = STANDARD


@pytest.mark.parametrize("form", [JSON, MSGPACK], ids=lambda form: form.name)
async def test_an_answer_comes_token_by_token(gateway: Service, form: Form) -> None:
    async with Client.connect(gateway.ws, form) as client:
        answer = await client.ask(QUESTION, max_output_tokens=TOKENS)
    assert answer.outcome == ("incomplete", "max_output_tokens", "model")
    assert answer.created["bucket"] == "short"
    assert len(answer.text) == TOKENS
    assert 1 < len(answer.deltas) <= TOKENS, "a busy machine sends several tokens together, but not all"
    assert answer.first_text_at is not None
    assert answer.first_text_at < answer.done_at
    response = answer.response
    assert response["model"] == "fake"
    assert response["usage"]["output_tokens"] == TOKENS
    assert response["usage"]["input_tokens"] > len(QUESTION)
    timings = response["timings"]
    assert set(timings) == {"admission_ms", "queue_ms", "prefill_ms", "ttft_ms", "total_ms"}
    assert timings["ttft_ms"] < timings["total_ms"] < 1_000 * answer.took_s + 5
    assert any("return" in entry["question"].lower() for entry in response["grounding"])
    assert all(entry["id"] and entry["answer"] for entry in response["grounding"])


async def test_the_second_question_is_asked_with_the_first_turn_before_it(system: System, gateway: Service) -> None:
    """Redis stores the turn, and the prompt grows by that text."""
    async with Client.connect(gateway.ws) as client:
        first = await client.ask(QUESTION, max_output_tokens=20)
        (turn,) = await system.turns(client.session_id, at_least=1)
        assert (turn.user, turn.output_text, turn.source) == (QUESTION, first.text, "model")
        assert turn.request_id == first.response["id"]
        second = await client.ask(QUESTION, max_output_tokens=20)
        assert len(await system.turns(client.session_id, at_least=2)) == 2
    said = len(QUESTION) + len(first.text)
    growth = second.response["usage"]["input_tokens"] - first.response["usage"]["input_tokens"]
    assert said < growth < said + 40
    assert second.text != first.text


async def test_a_conversation_continues_over_another_connection(gateway: Service) -> None:
    """A client needs only its session id; another session starts without history."""
    async with Client.connect(gateway.ws) as client:
        first = await client.ask(QUESTION, max_output_tokens=4)
        session_id = client.session_id
    async with (
        Client.connect(gateway.ws, session_id=session_id) as again,
        Client.connect(gateway.ws, MSGPACK) as stranger,
    ):
        assert again.session_id == session_id
        grown, fresh = await asyncio.gather(
            again.ask(QUESTION, max_output_tokens=4), stranger.ask(QUESTION, max_output_tokens=4)
        )
    tokens = [answer.response["usage"]["input_tokens"] for answer in (first, grown, fresh)]
    assert tokens[0] == tokens[2] < tokens[1]


async def test_a_seed_makes_sampling_repeatable(gateway: Service) -> None:
    async with Client.connect(gateway.ws) as client:

        async def ask(**fields: float) -> str:
            seen = len(client.events)
            await client.send({"type": "session.delete"})
            await client.of_type("session.deleted", since=seen)
            return (await client.ask("A question", max_output_tokens=24, **fields)).text

        first = await ask(temperature=1.0, seed=7)
        assert await ask(temperature=1.0, seed=7) == first
        assert await ask(temperature=1.0, seed=8) != first


async def test_a_stop_string_ends_the_answer_before_it(gateway: Service) -> None:
    """The stop string itself is not shown."""
    async with Client.connect(gateway.ws) as client, Client.connect(gateway.ws) as other:
        whole = await client.ask("A question", max_output_tokens=40)
        stop = whole.text[20:22]
        answer = await other.ask("A question", max_output_tokens=40, stop=[stop])
    assert answer.outcome == ("completed", "stop", "model")
    assert answer.text == whole.text[: whole.text.index(stop)]


async def test_no_text_of_a_customer_is_logged(gateway: Service, worker: Service) -> None:
    """Neither question nor answer is logged; the request's id is, once in each process."""
    async with Client.connect(gateway.ws) as client:
        answer = await client.ask("My parrot is called Marmaduke", max_output_tokens=30)
    for service in (gateway, worker):
        line = {"request_id": answer.response["id"]}
        await eventually(lambda: service.logged("answered", **line))  # noqa: B023 - a gateway's is written after the answer
        assert len(service.logged("answered", **line)) == 1
        assert "Marmaduke" not in service.log.read_text()
        assert answer.text not in service.log.read_text()
