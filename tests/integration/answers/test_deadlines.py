"""A client gets its answer within its deadline and a small margin, even if all workers are gone."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.standstill import InTime
from tests.support.system import Service, System, eventually
from tests.support.wire import Answer, Client

pytestmark = pytest.mark.system(worker__fake_decode_ms_per_step=10, worker__slots=4)

RETURNS = "How do I return an item?"


@pytest_asyncio.fixture
async def stopped(worker: Service, gateway: Service) -> AsyncIterator[Service]:
    """A worker that is stopped, as in a long pause of its machine."""
    worker.pause()
    yield worker
    worker.resume()
    async with Client.connect(gateway.ws) as client:
        assert (await client.ask("Are you back?", max_output_tokens=2)).outcome[2] == "model"


async def test_a_question_without_faq_entry_gets_busy_in_its_language(gateway: Service, stopped: Service) -> None:
    async with Client.connect(gateway.ws) as client:
        events = [await client.create(text, first_token_ms=300) for text in ("qwerty zxcvb", "天王星有几颗卫星")]
        english, chinese = [await client.answer(event_id) for event_id in events]
    assert english.outcome == chinese.outcome == ("completed", "stop", "busy")
    assert "busy" in english.text
    assert "稍后" in chinese.text
    assert "grounding" not in english.response


async def test_a_stopped_worker_costs_no_client_its_answer(gateway: Service, stopped: Service, in_time: InTime) -> None:
    """Each of twenty clients gets an FAQ answer by its soft deadline. Requests read later are dropped, not computed."""
    tokens_of_all = 20 * 5

    async def ask() -> Answer:
        async with Client.connect(gateway.ws) as client:
            return await client.ask(RETURNS, first_token_ms=500, max_output_tokens=5)

    answers = await asyncio.gather(*(ask() for _ in range(20)))
    assert {answer.outcome for answer in answers} == {("completed", "stop", "faq")}
    assert all(in_time(answer, 500) for answer in answers), sorted(answer.took_s for answer in answers)
    stopped.resume()
    tokens = await stopped.metric("replyline_worker_tokens_total", kind="output")
    async with Client.connect(gateway.ws) as client:
        assert (await client.ask("Back?", max_output_tokens=3)).outcome[2] == "model"
    computed = await stopped.metric("replyline_worker_tokens_total", kind="output") - tokens
    assert computed < tokens_of_all


async def test_the_faqs_answer_is_part_of_the_conversation(system: System, gateway: Service, stopped: Service) -> None:
    async with Client.connect(gateway.ws) as client:
        answer = await client.ask(RETURNS, first_token_ms=200)
        turns = await eventually(lambda: system.turns(client.session_id))
    assert [(turn.user, turn.output_text, turn.source) for turn in turns] == [(RETURNS, answer.text, "faq")]


async def test_the_hard_deadline_cuts_a_slow_answer(gateway: Service, worker: Service, in_time: InTime) -> None:
    """The text written before it stays; the worker stops."""
    ended = await worker.metric("infer_total")
    async with Client.connect(gateway.ws) as client:
        answer = await client.ask(RETURNS, deadline_ms=2_500, max_output_tokens=2_000)
    assert answer.outcome == ("incomplete", "deadline", "model")
    assert 0 < len(answer.text) < 300
    assert answer.took_s >= 2.499
    assert in_time(answer, 2_500)

    async def is_free() -> bool:
        return await worker.metric("replyline_worker_load", what="used") == 0

    await eventually(is_free, limit_s=10)  # the whole answer would have taken 17 seconds more

    async def is_counted() -> bool:
        return await worker.metric("infer_total") == ended + 1

    await eventually(is_counted)
    assert await worker.metric("infer_total", status="completed") == 0
