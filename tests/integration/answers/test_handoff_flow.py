"""Customers who wait for a person: the records in Kafka, the state in Redis, and what the operator sees and does."""

import asyncio
import json
import sys
from typing import Any

import msgpack
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis

from shared.wire.fields import MAX_ID_CHARS
from tests.support.shared_system import STANDARD
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Client

pytestmark = STANDARD

RETURNS = "How do I return an item?"


async def replyline(system: System, *arguments: str) -> tuple[int, str, str]:
    """Run the command; return its status, output and errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli", *arguments),
        env=system.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def recorded(system: System, session_id: str) -> list[dict[str, Any]]:
    async with system.reading("chat.handoffs") as tap:
        values = [msgpack.unpackb(record.value) for record in await tap.to_the_end()]
    return [value for value in values if value["session_id"] == session_id]


async def request_person(client: Client) -> dict[str, Any]:
    seen = len(client.events)
    await client.send({"type": "handoff.request"})
    return await client.of_type("handoff.created", since=seen)


async def test_a_hand_off_is_one_record_without_text_of_the_conversation_until_resolved(
    system: System, gateway: Service
) -> None:
    async with Client.connect(gateway.ws) as client:
        answer = await client.ask("My name is Zebedee", max_output_tokens=2)
        first, again = await request_person(client), await request_person(client)
        assert first["handoff_id"] == again["handoff_id"]
        (record,) = await recorded(system, client.session_id)
        assert record == {
            "type": "chat.handoff",
            "id": first["handoff_id"],
            "tenant": "demo",
            "session_id": client.session_id,
            "reason": "requested",
            "language": "en",
            "created_unix_ms": first["created_at"],
            "transcript": f"replyline:{{demo/{client.session_id}}}:turns",
            "response_ids": [answer.response["id"]],
        }
        assert len(record["id"]) <= MAX_ID_CHARS
        status, out, _ = await replyline(system, "handoffs", "list", "--json")
        listed = next(line for line in map(json.loads, out.splitlines()) if line["id"] == record["id"])
        assert (status, listed["open"], listed["transcript"]) == (0, "yes", record["transcript"])
        status, out, _ = await replyline(system, "handoffs", "resolve", record["id"].removeprefix("handoff_")[:12])
        assert (status, out) == (0, f"{record['id']}: resolved\n")
        other = await request_person(client)
        assert other["handoff_id"] != record["id"]
        assert len(await recorded(system, client.session_id)) == 2


async def test_after_two_fallbacks_in_a_row_a_person_is_requested_with_the_answer(
    system: System, gateway: Service
) -> None:
    async with Client.connect(gateway.ws) as client:
        for _ in range(2):
            assert client.count("handoff.created") == 0
            answer = await client.ask(RETURNS, first_token_ms=1)
            assert answer.outcome == ("completed", "stop", "faq")
        assert (await client.of_type("handoff.created"))["reason"] == "fallbacks"
        (record,) = await recorded(system, client.session_id)
        assert (record["reason"], len(record["response_ids"])) == ("fallbacks", 2)


async def test_an_erased_conversation_has_no_open_hand_off_and_too_many_requests_are_refused(
    system: System, gateway: Service
) -> None:
    async with Client.connect(gateway.ws) as client:
        await client.ask("转人工")
        turns = await eventually(
            lambda: system.turns(client.session_id)
        )  # a gateway stores its own hand-off along with the answer
        assert [turn.source for turn in turns] == ["handoff"]
        async with Redis.from_url(system.redis.url) as redis:
            key = f"replyline:{{demo/{client.session_id}}}:handoff"
            assert await redis.pttl(key) > 0
            await client.send({"type": "session.delete"})
            await client.of_type("session.deleted")
            assert not await redis.exists(key)
        for _ in range(5):
            await request_person(client)
        await client.send({"type": "handoff.request", "event_id": "e"})
        error = await client.error()
        assert (error["code"], error["event_id"], error["retryable"]) == ("rate_limited", "e", True)


async def test_a_hand_off_that_kafka_does_not_accept_is_not_confirmed(new_system: MakeSystem) -> None:
    """The topic is gone: the request fails, the question gets a `busy` answer that says so, and the model continues to
    answer.
    """
    system = await new_system()
    gateway = system.gateway(kafka__request_timeout_ms=2_500)
    await asyncio.gather(gateway.ready(), system.worker().ready())
    admin = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
    await admin.start()
    try:
        await admin.delete_topics([system.topic("chat.handoffs")])
    finally:
        await admin.close()
    async with Client.connect(gateway.ws) as client:
        await client.send({"type": "handoff.request", "event_id": "e"})
        error = await client.error()
        assert (error["code"], error["event_id"], error["retryable"]) == ("handoff_failed", "e", True)
        answer = await client.ask("Can I talk to a human?")
        assert answer.outcome[2] == "busy"
        assert client.count("handoff.created") == 0
        assert (await client.ask("Hello", max_output_tokens=2)).outcome[2] == "model"
    status, _, err = await replyline(system, "handoffs", "list")
    assert (status, err.count("\n")) == (1, 1)
    assert "replyline topics create" in err
