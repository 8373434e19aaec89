"""A cancel ends an answer, and deleting a session leaves nothing of it."""

import asyncio

import pytest

from tests.conformance.frontends.front_ends import LONG, FrontEnd
from tests.support.system import Service, System, eventually
from tests.support.wire import Bystander, Client

# --- cancel


@pytest.mark.parametrize("by", ["response_id", "target_event_id"])
async def test_a_cancel_ends_the_answer_and_frees_its_slot(
    client: Client, worker: Service, bystander: Bystander, by: str
) -> None:
    """The client keeps the text so far; the worker ends it as cancelled, not as completed."""
    async with bystander.paused:
        cancelled = await worker.metric("infer_total", status="cancelled")
        event_id = await client.create("Tell me all", max_output_tokens=LONG)
        name = await client.text_of(event_id, chars=5)
        await eventually(lambda: _has(worker, "replyline_worker_load", 1, what="used"))
        await client.send({"type": "response.cancel", by: name if by == "response_id" else event_id})
        answer = await client.answer(event_id)
        assert answer.outcome == ("cancelled", "client", "model")
        assert 5 <= len(answer.text) < LONG
        await eventually(lambda: _has(worker, "replyline_worker_load", 0, what="used"))
        await eventually(lambda: _has(worker, "infer_total", cancelled + 1, status="cancelled"))
        tokens = await worker.metric("replyline_worker_tokens_total", kind="output")
        await asyncio.sleep(0)
        assert await worker.metric("replyline_worker_tokens_total", kind="output") == tokens
    assert client.count("error") == 0


async def _has(worker: Service, metric: str, value: float, **labels: str) -> bool:
    return await worker.metric(metric, **labels) == value


async def test_a_cancel_frees_its_slot_immediately(
    gateway: Service, worker: Service, front: FrontEnd, client: Client
) -> None:
    """Eight slots are in use for a long time; cancelled, they serve the next requests before any would have ended."""
    async with Client.connect(gateway.ws, front.form) as other:
        before = await worker.metric("replyline_worker_tokens_total", kind="output")
        events = [(who, await who.create("Tell me all", max_output_tokens=LONG)) for who in [client, other] * 4]
        for who, event_id in events:
            await who.created(event_id)
        for who, event_id in events:
            await who.send({"type": "response.cancel", "target_event_id": event_id})
        for who, event_id in events:
            assert (await who.answer(event_id)).outcome[0] == "cancelled"
        assert (await client.ask("And now?", max_output_tokens=5)).outcome[2] == "model"
        computed = await worker.metric("replyline_worker_tokens_total", kind="output") - before
        assert computed < len(events) * LONG


async def test_a_cancel_directly_after_its_question_takes_effect(client: Client) -> None:
    """This holds even before the response has an id: exactly one created and one done."""
    event_id = await client.create("Tell me all", max_output_tokens=LONG)
    await client.send({"type": "response.cancel", "target_event_id": event_id})
    answer = await client.answer(event_id)
    assert answer.outcome == ("cancelled", "client", "model")


async def test_a_cancel_without_an_answer_is_an_error(client: Client) -> None:
    for target in ({"response_id": "resp_none"}, {"target_event_id": "ev_none"}):
        seen = len(client.events)
        await client.send({"type": "response.cancel", **target})
        error = await client.error(since=seen)
        assert (error["code"], error["event_id"]) == ("unknown_response", target.get("target_event_id"))
    seen = len(client.events)
    await client.send({"type": "response.cancel"})
    assert (await client.error(since=seen))["code"] == "invalid_field"


async def test_another_sessions_answer_cannot_be_cancelled(gateway: Service, front: FrontEnd, client: Client) -> None:
    async with Client.connect(gateway.ws, front.form) as stranger:
        event_id = await client.create("Tell me", max_output_tokens=50)
        name = (await client.created(event_id))["response_id"]
        await stranger.send({"type": "response.cancel", "response_id": name})
        assert (await stranger.error())["code"] == "unknown_response"
        assert len((await client.answer(event_id)).text) == 50


async def test_a_cancel_after_the_end_changes_nothing(client: Client) -> None:
    """The answer may have ended while the cancel was in transit: no error is sent, and there is one done."""
    event_id = await client.create("Tell me", max_output_tokens=3)
    answer = await client.answer(event_id)
    await client.send({"type": "response.cancel", "target_event_id": event_id})
    await client.send({"type": "response.cancel", "response_id": answer.response["id"]})
    await client.ask("And now?", max_output_tokens=3)
    assert client.count("response.done") == 2
    assert client.count("error") == 0


# --- delete


async def test_a_deleted_session_is_forgotten(
    client: Client, system: System, worker: Service, bystander: Bystander
) -> None:
    first = await client.ask("Remember 4711", event_id="before", max_output_tokens=10)
    assert len(await system.turns(client.session_id, at_least=1)) == 1
    await client.send({"type": "session.delete"})
    assert (await client.of_type("session.deleted"))["session_id"] == client.session_id
    assert await system.turns(client.session_id) == []
    seen = len(client.events)
    async with bystander.paused:
        before = await worker.metric("infer_total")
        await client.create("Remember 4711", event_id="before", max_output_tokens=10)
        again = await client.answer("before", since=seen)
        assert await worker.metric("infer_total") == before + 1, "it is computed again"
    for counted in ("input_tokens", "output_tokens"):  # the shop's texts may be cached: they belong to no customer
        assert again.response["usage"][counted] == first.response["usage"][counted]


async def test_an_answer_in_flight_when_its_session_is_deleted_leaves_nothing(
    client: Client, system: System, worker: Service
) -> None:
    """It is cancelled, and the worker's text so far is not remembered."""
    cancelled = await worker.metric("infer_total", status="cancelled")
    event_id = await client.create("Remember 4711", max_output_tokens=LONG)
    await client.text_of(event_id, chars=5)
    await client.send({"type": "session.delete"})
    assert (await client.answer(event_id)).outcome == ("cancelled", "client", "model")
    await client.of_type("session.deleted")
    assert [e["type"] for e in client.events].index("response.done") < [e["type"] for e in client.events].index(
        "session.deleted"
    )

    async def worker_is_done() -> bool:
        return await worker.metric("infer_total", status="cancelled") > cancelled

    await eventually(worker_is_done)
    fresh = await client.ask("Anything?", max_output_tokens=2)
    turns = await system.turns(client.session_id, at_least=1)
    assert [turn.request_id for turn in turns] == [fresh.response["id"]]
