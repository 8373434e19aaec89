"""A closed lane, and a lane whose workers die, on real Kafka: the champion answers questions without text so
far.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest_asyncio

from shared.versions.state import Rule, State
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Answer, Client

REVISION = "fake-1"
WHOLE = ("incomplete", "max_output_tokens", "model")
SHOWN_TOKENS, TOKENS = 250, 20
DEADLINE_MS = 40_000
OPEN = State(epoch=1, aliases={"champion": REVISION, "canary": REVISION}, rule=Rule(salt="all", share=1.0))
CLOSED = State(epoch=2, aliases={"champion": REVISION})


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    return await new_system(
        kafka__session_timeout_ms=3_000,
        promise__first_token_ms=DEADLINE_MS,
        promise__deadline_ms=DEADLINE_MS,
        gateway__messages_per_minute=100_000,
        gateway__max_inflight_per_connection=5,
    )


@pytest_asyncio.fixture
async def services(system: System) -> AsyncIterator[tuple[Service, Service, Service]]:
    """A gateway that sends everything to the canary, whose one worker has one slow slot, and the champion's worker."""
    await system.move(OPEN)
    services = system.gateway(), canary(system), system.worker()
    for service in services:
        await service.ready()
    gateway = services[0]
    await eventually(lambda: gateway.logged("worker_found", lane="canary") and gateway.logged("versions_changed"))
    yield services


def canary(system: System) -> Service:
    return system.worker(worker__lane="canary", worker__slots=1, worker__fake_decode_ms_per_step=40)


async def queue_behind_one(client: Client) -> list[str]:
    """Ask one whose text is shown, and four that wait behind it."""
    first = await client.create("The first", max_output_tokens=SHOWN_TOKENS)
    await client.text_of(first)
    others = [await client.create(f"Another {number}", max_output_tokens=TOKENS) for number in range(4)]
    for event_id in others:
        await client.created(event_id)
    return [first, *others]


async def answers(client: Client, asked: list[str]) -> list[Answer]:
    return [await client.answer(event_id, limit_s=DEADLINE_MS / 1_000 + 1) for event_id in asked]


async def test_a_closed_lane_ends_shown_answers_and_passes_the_rest_on(
    system: System, services: tuple[Service, Service, Service], unique: Callable[[str], str]
) -> None:
    gateway, worker, champion = services
    async with Client.connect(gateway.ws, session_id=unique("closed")) as client:
        asked = await queue_behind_one(client)
        await system.move(CLOSED)
        ended = await answers(client, asked)
        assert [answer.outcome for answer in ended] == [WHOLE] * 5
        assert [len(answer.text) for answer in ended] == [SHOWN_TOKENS, *[TOKENS] * 4]
        assert client.count("response.done") == 5
    assert [await each.metric("infer_total") for each in (worker, champion)] == [1, 4]
    assert await worker.metric("replyline_passed_on_total", lane="canary") == 4
    passed = [line["request_id"] for line in worker.logged("passed_on")]
    assert passed == [answer.response["id"] for answer in ended[1:]], "of one conversation, in order"


async def test_the_champion_answers_a_killed_canarys_questions_until_it_is_back(
    system: System, services: tuple[Service, Service, Service], unique: Callable[[str], str]
) -> None:
    gateway, worker, champion = services
    async with Client.connect(gateway.ws, session_id=unique("killed")) as client:
        asked = await queue_behind_one(client)
        worker.kill()
        ended = await answers(client, asked)
        assert [answer.outcome for answer in ended] == [WHOLE] * 5
        assert [len(answer.text) for answer in ended] == [SHOWN_TOKENS, *[TOKENS] * 4]
        assert client.count("response.done") == 5
        assert await champion.metric("infer_total") == 5
        assert await gateway.metric("replyline_passed_on_total", lane="canary") == 5
        again = await canary(system).ready()
        await eventually(lambda: gateway.logged("lane_left", lane="canary"))
        assert (await client.ask("Who answers now?", max_output_tokens=3)).outcome == WHOLE
    await eventually(lambda: _answered(again, 1))
    assert await gateway.metric("replyline_passed_on_total", lane="canary") == 5


async def _answered(worker: Service, count: int) -> bool:
    await asyncio.sleep(0)
    return await worker.metric("infer_total") == count
