"""Chatwoot's agent bot on the real system: a question is answered once in its conversation if any process dies."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from ops.stack.processes import free_port
from tests.support.servers.called_server import Reply
from tests.support.servers.chatwoot import SECRET, TOKEN, Chatwoot, signed
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System, eventually

pytestmark = [STANDARD, pytest.mark.usefixtures("running")]


@dataclass(slots=True)
class Desk:
    """A fake Chatwoot, and the gateways that answer for it."""

    chatwoot: Chatwoot
    url: str
    system: System
    http: httpx2.AsyncClient

    async def gateway(self, partition: int) -> tuple[Service, str]:
        """Start a gateway; return the address of its bot."""
        port = free_port()
        service = self.system.gateway(
            gateway__reply_partition=partition,
            gateway__http_port=port,
            kafka__session_timeout_ms=6_000,
            chatwoot__url=self.url,
            chatwoot__token_file=TOKEN,
            chatwoot__secret_file=SECRET,
        )
        return await service.ready(), f"http://127.0.0.1:{port}/channels/chatwoot"

    async def post(self, bot: str, body: bytes, **about: Any) -> int:
        """Deliver a webhook; a gateway that has just started may ask for another of Chatwoot's three tries."""
        headers = signed(body, **about)
        for _ in range(3):
            status = (await self.http.post(bot, content=body, headers=headers)).status_code
            if status != 429:
                break
            await asyncio.sleep(3)
        return status

    async def said(self, number: int, *, times: int = 1) -> list[str]:
        conversation = self.chatwoot.conversations[number]
        await eventually(lambda: len(conversation.by_bot()) >= times)
        return conversation.by_bot()


@pytest_asyncio.fixture(scope="module")
async def desk(system: System) -> AsyncIterator[Desk]:
    chatwoot = Chatwoot()
    with chatwoot.server().serve() as server:
        async with httpx2.AsyncClient(timeout=30) as http:
            yield Desk(chatwoot, server.url, system, http)


@pytest_asyncio.fixture(scope="module")
async def bot(desk: Desk) -> str:
    return (await desk.gateway(2))[1]


async def test_a_question_is_answered_in_its_conversation(desk: Desk, bot: str) -> None:
    assert await desk.post(bot, desk.chatwoot.ask(1, "Tell me all of it")) == 200
    conversation = desk.chatwoot.conversations[1]
    assert await desk.said(1) != [""]
    await eventually(lambda: conversation.typing == ["on", "off"])
    assert conversation.status == "pending"
    assert desk.chatwoot.tokens == {TOKEN.decode()}
    assert await desk.post(bot, desk.chatwoot.ask(1, "And then?")) == 200
    assert len(await desk.said(1, times=2)) == 2


async def test_a_repeated_delivery_is_computed_once(desk: Desk, bot: str, worker: Service) -> None:
    before = await worker.metric("infer_total")
    body = desk.chatwoot.ask(2, "Once?")
    assert [await desk.post(bot, body, delivery="d-2") for _ in range(3)] == [200, 200, 200]
    await desk.said(2)
    await eventually(lambda: desk.chatwoot.conversations[2].typing.count("off") == 3)
    assert len(await desk.said(2)) == 1
    assert await worker.metric("infer_total") == before + 1


async def test_no_answer_is_posted_after_a_person_has_taken_over(desk: Desk, bot: str) -> None:
    body = desk.chatwoot.ask(3, "Tell me")
    desk.chatwoot.conversations[3].status = "open"  # since the webhook was sent
    assert await desk.post(bot, body) == 200
    await eventually(lambda: desk.chatwoot.conversations[3].typing[-1:] == ["off"])
    assert desk.chatwoot.conversations[3].by_bot() == []


async def test_a_customer_who_asks_for_a_person_is_handed_over_and_may_return(desk: Desk, bot: str) -> None:
    await desk.post(bot, desk.chatwoot.ask(4, "Can I talk to a human?"))
    conversation = desk.chatwoot.conversations[4]
    await eventually(lambda: conversation.status == "open")
    assert "asked a person" in (await desk.said(4))[0]
    conversation.status = "pending"
    await desk.post(bot, desk.chatwoot.ask(4, "Tell me"))
    await eventually(lambda: conversation.typing[-2:] == ["on", "off"] and len(conversation.by_bot()) == 2)
    assert conversation.status == "pending"


async def test_a_question_without_an_answer_is_handed_over_with_its_reason(desk: Desk, bot: str) -> None:
    for number, text in ((5, None), (6, "word " * 5_000)):
        assert await desk.post(bot, desk.chatwoot.ask(number, text)) == 200
        conversation = desk.chatwoot.conversations[number]
        await eventually(lambda conversation=conversation: conversation.status == "open")
        assert conversation.by_bot() == []
        (note,) = conversation.by_bot(private=True)
        assert ("no_text" if text is None else "input_too_long") in note


async def test_a_post_is_retried_while_chatwoot_is_away(desk: Desk, bot: str) -> None:
    away = [Reply(503), Reply(429)]
    desk.chatwoot.before = lambda call: away.pop() if away and call.path.endswith("/messages") else None
    await desk.post(bot, desk.chatwoot.ask(7, "Tell me"))
    assert len(await desk.said(7)) == 1
    assert away == []


async def test_a_post_that_chatwoot_forbids_is_given_up(desk: Desk, bot: str) -> None:
    """The token belongs to another account, or was withdrawn."""
    desk.chatwoot.before = lambda call: Reply(401) if call.path.endswith("/messages") else None
    await desk.post(bot, desk.chatwoot.ask(8, "Tell me"))
    await eventually(lambda: desk.chatwoot.conversations[8].typing == ["on", "off"])
    desk.chatwoot.before = lambda _: None
    assert desk.chatwoot.conversations[8].by_bot() == []


async def test_an_answer_is_posted_although_its_gateway_is_killed(desk: Desk, bot: str) -> None:
    """The kill comes between the webhook's 200 and the answer; either gateway may have the errand."""
    del bot  # its gateway continues
    dying, its_bot = await desk.gateway(3)
    numbers = range(9, 13)
    bodies = [desk.chatwoot.ask(number, "Tell me all") for number in numbers]
    assert await asyncio.gather(*(desk.post(its_bot, body) for body in bodies)) == [200] * len(bodies)
    dying.kill()
    for number in numbers:
        assert len(await desk.said(number)) == 1
