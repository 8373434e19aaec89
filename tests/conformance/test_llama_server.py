"""A real llama-server's contract with a worker whose engine is `upstream`, and the worker's with its customers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ops.operate.doctor.engine_facts import engine_facts
from shared.settings import Settings
from tests.support.builders.upstream_worker import Running, worker
from tests.support.servers.llama_server import LlamaServer
from workers.engine.upstream.body import ChatMessage
from workers.engine.upstream.client import Served

pytestmark = pytest.mark.long

SLOTS = 2
SYSTEM = ChatMessage("system", "You are a friendly support agent of an online shop. Answer in one or two sentences.")
ASKED = (SYSTEM, ChatMessage("user", "How long may I return a pair of shoes that does not fit?"))
LONG_MS = 50_000


@asynccontextmanager
async def serving(places: int = SLOTS) -> AsyncIterator[tuple[LlamaServer, Running]]:
    async with LlamaServer(slots=SLOTS) as server, worker(server.url, places=places) as running:
        yield server, running


async def test_a_llama_server_answer_has_its_limit_stop_string_and_usage() -> None:
    async with serving() as (_, running):
        whole = running.ask(0, *ASKED, output=120, first_ms=LONG_MS)
        ((*end, text),) = await running.end(whole)
        assert end in (["completed", "stop"], ["incomplete", "max_output_tokens"])
        assert len(whole.sequence.prompt_ids) != 20, "its usage is accepted"
        cut = running.ask(1, *ASKED, output=8, first_ms=LONG_MS)
        ((*end, begun),) = await running.end(cut)
        assert end == ["incomplete", "max_output_tokens"]
        assert begun
        assert text.startswith(begun), "greedy answers are the same"
        assert cut.usage().output_tokens == 8
        stop = text.split()[3]
        stopped = running.ask(2, *ASKED, output=120, stops=(stop,), first_ms=LONG_MS)
        assert await running.end(stopped) == [("completed", "stop", text[: text.index(stop)])]


async def test_a_conversations_next_turn_reuses_the_servers_cache() -> None:
    async with serving() as (_, running):
        first = running.ask(0, *ASKED, output=30, first_ms=LONG_MS)
        ((*_, text),) = await running.end(first)
        turns = (*ASKED, ChatMessage("assistant", text), ChatMessage("user", "And how long for a coat?"))
        second = running.ask(1, *turns, output=8, first_ms=LONG_MS)
        await running.end(second)
        assert second.usage().cached_tokens >= first.usage().input_tokens - 8


async def test_more_requests_than_slots_are_all_answered_and_cancels_free_slots() -> None:
    async with serving(places=2 * SLOTS) as (_, running):
        asked = [running.ask(number, *ASKED, output=400, first_ms=LONG_MS) for number in range(2 * SLOTS)]
        await running.until(lambda: any(each.answer.text for each in asked))
        for each in asked:
            running.loop.cancel(each.id)
        assert {end[:2] for end in await running.end(*asked)} == {("cancelled", "client")}
        more = [running.ask(10 + number, *ASKED, output=4, first_ms=LONG_MS) for number in range(3 * SLOTS)]
        assert {end[:2] for end in await running.end(*more)} == {("incomplete", "max_output_tokens")}
        assert not running.loop.choice.missing()


async def test_a_prompt_too_long_for_the_server_fails_alone() -> None:
    async with serving() as (_, running):
        long = running.ask(0, ChatMessage("user", "shoes " * 3_000), first_ms=LONG_MS)
        assert await running.end(long) == [("incomplete", "infeasible", "")]
        assert (await running.end(running.ask(1, *ASKED, output=4, first_ms=LONG_MS)))[0][2]


async def test_an_answer_continues_with_the_same_text_after_the_server_was_killed() -> None:
    async with serving() as (server, running):
        whole = running.ask(0, *ASKED, output=60, first_ms=LONG_MS)
        ((*_, text),) = await running.end(whole)
        again = running.ask(1, *ASKED, output=60, first_ms=LONG_MS)
        await running.until(lambda: again.answer.text)
        server.kill()
        await server.start()
        assert (await running.end(again))[0] == (*(await running.end(whole))[0][:2], text)


async def test_a_server_that_stays_away_keeps_the_shown_text_and_the_faq_answers_later_questions() -> None:
    async with serving() as (server, running):
        begun = running.ask(0, *ASKED, output=60, first_ms=10_000)
        await running.until(lambda: begun.answer.text)
        server.kill()
        ((*end, text),) = await running.end(begun)
        assert end == ["incomplete", "infeasible"]
        assert text
        assert await running.end(running.ask(1, *ASKED, first_ms=LONG_MS)) == [("incomplete", "infeasible", "")]
        assert "start it" in str(running.loop.missing())


async def test_the_doctor_reads_the_servers_capacity() -> None:
    async with LlamaServer(slots=SLOTS) as server:
        given = {"worker": {"engine": "upstream"}, "upstream": {"url": [server.url]}}
        facts = await asyncio.to_thread(engine_facts, Settings.model_validate(given))
        assert facts.upstreams[0].found == Served(("smollm2",), slots=SLOTS, length=server.length)
