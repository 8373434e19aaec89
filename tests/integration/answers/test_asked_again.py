"""Questions that are erased while they are answered, and asked again under the same id, with real processes at one
gateway and at two.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from tests.integration.support.cuts import WHOLE
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System
from tests.support.wire import Answer, Client

Way = Callable[[System, Service, Service], Awaitable[Answer]]
FIRST, QUESTION, TOKENS = "My name is Sorrel.", "How do I track my parcel?", 40
LONG = 2_000  # tokens: long enough that the erasure comes in time
AT_ONCE = 12


pytestmark = STANDARD


@pytest_asyncio.fixture(scope="module")
async def fresh(gateway: Service) -> str:
    """Return the answer without history: the model's text depends only on its prompt."""
    async with Client.connect(gateway.ws) as client:
        return (await client.ask(QUESTION, max_output_tokens=TOKENS)).text


@asynccontextmanager
async def in_the_middle(system: System, gateway: Service) -> AsyncIterator[Client]:
    """Return a client that is receiving an answer which depends on an earlier turn."""
    async with Client.connect(gateway.ws) as client:
        await client.ask(FIRST, max_output_tokens=4)
        await system.turns(client.session_id, at_least=1)
        await ask(client, LONG)
        await client.text_of("asked")
        yield client


async def ask(client: Client, tokens: int = TOKENS) -> int:
    """Ask; return the position from which later messages count."""
    since = len(client.events)
    await client.create(QUESTION, event_id="asked", max_output_tokens=tokens)
    return since


async def erase(client: Client) -> None:
    await client.send({"type": "session.delete"})
    await client.of_type("session.deleted")


async def after_it_is_done(system: System, here: Service, there: Service) -> Answer:
    async with in_the_middle(system, here) as client:
        await erase(client)
        return await client.answer("asked", since=await ask(client))


async def in_one_breath(system: System, here: Service, there: Service) -> Answer:
    async with in_the_middle(system, here) as client:
        await client.send({"type": "session.delete"})
        return await client.answer("asked", since=await again_after_the_end(client))


async def again_after_the_end(client: Client) -> int:
    """Ask again immediately; the new events follow the end of the cancelled answer."""
    await client.create(QUESTION, event_id="asked", max_output_tokens=TOKENS)
    end = await client.until(lambda e: e["type"] == "response.done" and e["response"]["status"] == "cancelled")
    return client.events.index(end) + 1


async def at_another_gateway(system: System, here: Service, there: Service) -> Answer:
    """Ask on a socket that was open before."""
    async with in_the_middle(system, here) as client, Client.connect(there.ws, session_id=client.session_id) as other:
        await erase(client)
        return await other.answer("asked", since=await ask(other))


async def erased_at_another_gateway(system: System, here: Service, there: Service) -> Answer:
    async with in_the_middle(system, here) as client, Client.connect(there.ws, session_id=client.session_id) as other:
        await erase(other)
        return await client.answer("asked", since=await again_after_the_end(client))


WAYS: tuple[Way, ...] = (after_it_is_done, in_one_breath, at_another_gateway, erased_at_another_gateway)


@pytest.mark.parametrize("way", WAYS)
async def test_a_question_repeated_after_an_erasure_is_answered_without_the_erased_turns(
    way: Way, system: System, gateways: list[Service], fresh: str
) -> None:
    """The model answers it completely, without the earlier history."""
    answers = await asyncio.gather(*(way(system, *gateways) for _ in range(AT_ONCE)))
    assert [(answer.outcome, answer.text) for answer in answers] == [(WHOLE, fresh)] * AT_ONCE


async def test_an_erased_answer_stays_out_of_the_history_when_redis_has_lost_its_mark(
    system: System, gateway: Service
) -> None:
    """It stays out of the next prompt too, because the worker itself remembers the erasure."""
    async with in_the_middle(system, gateway) as client:
        await erase(client)
        async with Redis.from_url(system.redis.url) as redis:
            await redis.flushall()
        since = await ask(client)
        await client.answer("asked", since=since)
        turns = await system.turns(client.session_id, at_least=1)
        assert [(turn.user, turn.status) for turn in turns] == [(QUESTION, "incomplete")]
