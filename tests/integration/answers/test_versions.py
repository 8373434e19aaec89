"""Two gateways and a registry on real Kafka: which conversation gets which version, until a rollback or a
dead canary.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from shared.settings import Settings
from shared.versions.state import Rule, State
from shared.wire.codec import decode_observation
from shared.wire.session_key import SessionKey
from tests.integration.support.cuts import TOKENS, WHOLE, ask_and_lose
from tests.support.system import CURSOR_SECRET, MakeSystem, Service, System, eventually
from tests.support.wire import Client

RULE = Rule(salt="half", share=0.5)
OPEN = State(epoch=1, aliases={"champion": "fake-1", "canary": "fake-1"}, rule=RULE)
ROLLED_BACK = State(epoch=2, aliases={"champion": "fake-1"})
CONVERSATIONS = 8


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    return await new_system(gateway__messages_per_minute=100_000, gateway__cursor_secret_file=CURSOR_SECRET)


@pytest_asyncio.fixture
async def services(system: System) -> AsyncIterator[tuple[list[Service], Service, Service]]:
    """Two gateways, the champion's worker and the canary's."""
    await system.move(OPEN)
    gateways = [system.gateway(gateway__reply_partition=number) for number in range(2)]
    workers = system.worker(), system.worker(worker__lane="canary")
    for service in (*gateways, *workers):
        await service.ready()
    for gateway in gateways:
        await until_known(gateway)
        await until_epoch(gateway, 1)
    yield gateways, *workers


async def until_known(gateway: Service) -> None:
    await eventually(lambda: all(gateway.logged("worker_found", lane=lane) for lane in ("champion", "canary")))


async def until_silent(gateway: Service) -> None:
    await eventually(lambda: gateway.logged("worker_silent"))


async def until_epoch(gateway: Service, epoch: int) -> None:
    async def is_reached() -> bool:
        return await gateway.metric("replyline_versions_epoch") == epoch

    await eventually(is_reached)


async def ask(gateway: Service, session: str, event_id: str) -> dict[str, Any]:
    async with Client.connect(gateway.ws, session_id=session) as client:
        answer = await client.ask(f"What of {event_id}?", event_id=event_id, max_output_tokens=3)
        return answer.response


async def lanes_of(gateway: Service, sessions: list[str], event_id: str) -> dict[str, str]:
    """Return, by conversation, the lane whose worker answered its question."""
    answered = await asyncio.gather(*(ask(gateway, session, event_id) for session in sessions))
    assert {(each["status"], each["source"]) for each in answered} == {("incomplete", "model")}
    return {session: each.get("lane", "champion") for session, each in zip(sessions, answered, strict=True)}


async def test_a_conversation_has_one_lane_at_every_gateway_until_a_rollback(
    system: System, services: tuple[list[Service], Service, Service]
) -> None:
    gateways, _, canary = services
    sessions = [f"sticky-{number}" for number in range(CONVERSATIONS)]  # by their hashes some are in either lane
    ruled = {session: RULE.lane(SessionKey(Settings().tenant, session)) for session in sessions}
    assert set(ruled.values()) == {"champion", "canary"}
    for number, gateway in enumerate(gateways):
        assert await lanes_of(gateway, sessions, f"e{number}") == ruled
    of_canary = 2 * list(ruled.values()).count("canary")
    assert await canary.metric("infer_total") == of_canary
    async with system.reading("chat.observations") as tap:
        await eventually(lambda: _has(tap, of_canary))
        seen = [decode_observation(record.value) for record in tap.records]
    assert {(each.lane, each.revision, each.epoch, each.failed, each.missed) for each in seen} == {
        ("canary", "fake-1", 1, False, False)
    }
    assert len({each.conversation for each in seen}) == of_canary / 2
    assert [await gateway.metric("replyline_gateway_rollout") for gateway in gateways] == [1, 1]
    await system.move(ROLLED_BACK)
    for number, gateway in enumerate(gateways):
        await until_epoch(gateway, 2)
        assert await gateway.metric("replyline_gateway_rollout") == 0
        assert set((await lanes_of(gateway, sessions, f"f{number}")).values()) == {"champion"}
        counted = [
            await gateway.metric("replyline_gateway_lane_requests_total", lane=lane) for lane in ("champion", "canary")
        ]
        assert counted == [2 * CONVERSATIONS - of_canary / 2, of_canary / 2]
    assert await canary.metric("infer_total") == of_canary


async def _has(tap: Any, number: int) -> bool:
    return len(await tap.to_the_end()) >= number


async def test_a_dead_canary_costs_no_answer(services: tuple[list[Service], Service, Service]) -> None:
    gateways, champion, canary = services
    sessions = [f"sticky-{number}" for number in range(CONVERSATIONS)]
    canary.kill()
    for number, gateway in enumerate(gateways):
        await until_silent(gateway)
        assert set((await lanes_of(gateway, sessions, f"e{number}")).values()) == {"champion"}
    assert await champion.metric("infer_total") == 2 * CONVERSATIONS


async def test_a_canary_answers_with_its_named_version_or_not_at_all(
    system: System, services: tuple[list[Service], Service, Service]
) -> None:
    """While the canary's worker loads a version, the champion answers instead."""
    gateways, _, _ = services
    aliases = {**OPEN.aliases, "canary": "fake-9"}
    await system.move(State(epoch=2, aliases=aliases, rule=Rule(salt="half", share=1.0)))
    await until_epoch(gateways[0], 2)
    answered: list[tuple[str, str]] = []

    async def is_canarys() -> bool:
        response = await ask(gateways[0], f"s{len(answered)}", "e")
        answered.append((response.get("lane", "champion"), response["revision"]))
        return answered[-1][0] == "canary"

    await eventually(is_canarys)
    assert answered[0] == ("champion", "fake-1")
    assert {*answered} == {("champion", "fake-1"), ("canary", "fake-9")}


async def test_a_canarys_answer_resumes_at_another_gateway(
    system: System, services: tuple[list[Service], Service, Service]
) -> None:
    gateways, champion, _ = services
    await system.move(State(epoch=2, aliases=OPEN.aliases, rule=Rule(salt="half", share=1.0)))
    for gateway in gateways:
        await until_epoch(gateway, 2)
    cut = await ask_and_lose(gateways[0], 5)
    answer = await cut.resume(gateways[1])
    assert (answer.outcome, len(answer.text)) == (WHOLE, TOKENS)
    assert (answer.response["lane"], answer.response["revision"]) == ("canary", "fake-1")
    assert await champion.metric("infer_total") == 0
