"""A person answers in the customer's chat, over the desk's paths, on real Kafka and Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from ops.stack.processes import free_port
from tests.support.system import MakeSystem, Service, System
from tests.support.wire import Client

QUESTION = "Tell me a long story"
MESSAGES = 12


@asynccontextmanager
async def desk_at(port: int, agent: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}/desk", headers={"Replyline-Agent": agent}, timeout=40, trust_env=False
    ) as desk:
        yield desk


async def asks_for_a_person(client: Client) -> None:
    await client.send({"type": "handoff.request"})
    await client.until(lambda event: event["type"] == "person.state" and event["state"] == "waiting")


async def listed(desk: httpx2.AsyncClient) -> dict[str, Any]:
    """Return the one conversation at the desk, whose gateway may read of it later than the customer's."""
    chats: list[dict[str, Any]] = []
    after = ""
    while not chats:
        found = (await desk.get("/chats", params={"after": after})).json()
        chats, after = found["chats"], str(found["next"])
    [chat] = chats
    return chat


async def state(client: Client, wanted: str, since: int = 0) -> None:
    await client.until(lambda event: event["type"] == "person.state" and event["state"] == wanted, since=since)


def said_to(client: Client) -> list[dict[str, Any]]:
    return [event for event in client.events if event["type"] == "person.message"]


async def system_of(new_system: MakeSystem) -> tuple[System, list[Service], list[int]]:
    system = await new_system()
    ports = [free_port(), free_port()]
    gateways = [
        system.gateway(gateway__reply_partition=number, gateway__http_port=port, gateway__cursor_secret_file=b"s" * 32)
        for number, port in enumerate(ports)
    ]
    await asyncio.gather(*(service.ready() for service in (*gateways, system.worker())))
    return system, gateways, ports


async def test_a_person_takes_in_mid_answer_and_a_killed_gateway_loses_and_doubles_nothing(
    new_system: MakeSystem,
) -> None:
    system, gateways, ports = await system_of(new_system)
    async with (
        Client.connect(gateways[0].ws, talk=0) as client,
        desk_at(ports[1], "Anna") as anna,
        desk_at(ports[1], "Bert") as bert,
    ):
        session_id = client.session_id
        await asks_for_a_person(client)
        event_id = await client.create(QUESTION, max_output_tokens=2_000)
        await client.text_of(event_id)
        chat = await listed(anna)
        assert (chat["session_id"], chat["state"], chat["reason"]) == (session_id, "waiting", "requested")
        take = {"session_id": session_id, "to": "taken", "epoch": chat["epoch"]}
        raced = await asyncio.gather(anna.post("/move", json=take), bert.post("/move", json=take))
        assert sorted(each.status_code for each in raced) == [200, 409]
        desk, other = (anna, bert) if raced[0].status_code == 200 else (bert, anna)
        await state(client, "taken")
        at = len(client.events)
        [end] = [event["response"] for event in client.events if event["type"] == "response.done"]
        assert (end["status"], end["reason"]) == ("cancelled", "person")
        message = {"session_id": session_id, "message_id": "m0", "text": "Hello 0"}
        assert (await other.post("/say", json=message)).status_code == 409
        for number in range(MESSAGES):
            message = {"session_id": session_id, "message_id": f"m{number}", "text": f"Hello {number}"}
            sent = await asyncio.gather(desk.post("/say", json=message), desk.post("/say", json=message))
            assert {each.status_code for each in sent} == {200}
            if number == MESSAGES // 2:
                await client.until(lambda event: event.get("message_id") == "m3")
                gateways[0].kill()
        assert await client.closed() == 1006
        assert [event for event in client.events[at:] if event["type"].startswith("response.output")] == []
        heard = said_to(client)
        async with Client.connect(gateways[1].ws, session_id=session_id, talk=heard[-1]["n"]) as again:
            await state(again, "taken")
            texts = [each["text"] for each in (*heard, *said_to(again))]
            assert texts == [f"Hello {number}" for number in range(MESSAGES)]
            answer = await again.ask("Are you there?")
            assert answer.outcome == ("completed", "stop", "handoff")
            whole = (await desk.get(f"/chat?session_id={session_id}")).json()
            assert whole["said"][-1] | {"n": 0, "unix_ms": 0, "message_id": ""} == {
                "n": 0,
                "message_id": "",
                "by": "customer",
                "name": "",
                "text": "Are you there?",
                "unix_ms": 0,
            }
            assert QUESTION in [each["text"] for each in whole["said"]], "the question of the answer that was ended"
            await desk.post("/say", json={"session_id": session_id, "message_id": "last", "text": "Yes."})
            await desk.post("/move", json={"session_id": session_id, "to": "bot"})
            await state(again, "bot")
            answer = await again.ask("And now?", max_output_tokens=3)
            assert answer.outcome[2] == "model"
        turns = await system.turns(session_id, at_least=3)
        persons = [turn for turn in turns if turn.request_id.startswith("person_")]
        assert (persons[-1].user, persons[-1].output_text) == ("Are you there?", "Yes.")
        assert len({turn.request_id for turn in persons}) == len(persons)


async def test_an_erased_conversation_leaves_the_desk_and_a_gateway_started_since(new_system: MakeSystem) -> None:
    system, gateways, ports = await system_of(new_system)
    async with Client.connect(gateways[0].ws, talk=0) as client, desk_at(ports[1], "Anna") as desk:
        await asks_for_a_person(client)
        await listed(desk)
        named = {"session_id": client.session_id}
        assert (await desk.post("/move", json=named | {"to": "taken"})).status_code == 200
        assert (await desk.post("/say", json=named | {"message_id": "m", "text": "Zebedee"})).status_code == 200
        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")
        port = free_port()
        await system.gateway(gateway__reply_partition=2, gateway__http_port=port).ready()
        async with desk_at(port, "Anna") as late:
            for each in (desk, late):
                assert (await each.get("/chats")).json()["chats"] == []
                assert (await each.get("/chat", params=named)).status_code == 404
                said = await each.post("/say", json=named | {"message_id": "m2", "text": "Hello"})
                assert said.status_code == 404
