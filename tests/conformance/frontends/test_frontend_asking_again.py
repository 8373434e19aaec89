"""A repeated event is the same response, in any place and at any time."""

from tests.conformance.frontends.front_ends import FrontEnd
from tests.support.system import Service, eventually
from tests.support.wire import Bystander, Client


async def test_an_event_repeated_in_flight_is_the_same_response(
    client: Client, worker: Service, bystander: Bystander
) -> None:
    """The response restarts at its beginning, runs to its end, and is computed once."""
    async with bystander.paused:
        before = await _asked(worker)
        await client.create("Tell me all", event_id="twice", max_output_tokens=250)
        name = await client.text_of("twice", chars=5)
        await client.create("Tell me all", event_id="twice", max_output_tokens=250)
        await eventually(lambda: client.count("response.created") == 2)
        again = max(number for number, event in enumerate(client.events) if event["type"] == "response.created")
        answer = await client.answer("twice", since=again)
        assert answer.response["id"] == name
        assert len(answer.text) == 250
        assert await _asked(worker) == before + 1
    assert client.count("response.done") == 1


async def test_an_event_repeated_immediately_is_one_response(
    client: Client, worker: Service, bystander: Bystander
) -> None:
    """The repetition comes before Kafka has acknowledged the first."""
    async with bystander.paused:
        before = await _asked(worker)
        for _ in range(3):
            await client.create("Tell me", event_id="at-once", max_output_tokens=10)
        await client.of_type("response.done")
        assert await _asked(worker) == before + 1
    names = {event["response_id"] for event in client.events if event["type"] == "response.created"}
    assert len(names) == 1
    assert client.count("error") == 0


async def test_an_event_repeated_after_the_end_is_the_same_answer(
    client: Client, worker: Service, bystander: Bystander
) -> None:
    async with bystander.paused:
        first = await client.ask("Tell me", event_id="again", max_output_tokens=10)
        before = await _asked(worker)
        seen = len(client.events)
        await client.create("Tell me", event_id="again", max_output_tokens=10)
        second = await client.answer("again", since=seen)
        assert second.done == first.done
        assert await _asked(worker) == before


async def test_a_client_that_lost_its_socket_gets_its_answer_by_repeating_its_event(
    gateway: Service, front: FrontEnd, worker: Service, bystander: Bystander
) -> None:
    """A dropped socket is not a cancel: in the same session, the same event finds the answer, running or done."""
    async with bystander.paused:
        before = await _asked(worker)
        async with Client.connect(gateway.ws, front.form) as client:
            session_id = client.session_id
            await client.create("Tell me all", event_id="kept", max_output_tokens=80)
            name = await client.text_of("kept", chars=3)
            client.socket.transport.abort()
        for _ in range(2):
            async with Client.connect(gateway.ws, front.form, session_id=session_id) as back:
                answer = await back.ask("Tell me all", event_id="kept", max_output_tokens=80)
                assert (answer.response["id"], len(answer.text)) == (name, 80)
        assert await _asked(worker) == before + 1


async def test_another_sessions_event_of_the_same_id_is_another_response(gateway: Service, front: FrontEnd) -> None:
    async with Client.connect(gateway.ws, front.form) as one, Client.connect(gateway.ws, front.form) as other:
        mine = await one.ask("Tell me", event_id="mine", max_output_tokens=5)
        yours = await other.ask("Tell me", event_id="mine", max_output_tokens=5)
    assert mine.response["id"] != yours.response["id"]


async def _asked(worker: Service) -> float:
    """Return how many requests the worker has answered, once it has no other; cancels may reach it late."""

    async def is_idle() -> bool:
        busy = [await worker.metric(f"replyline_worker_{what}") for what in ("slots_used", "waiting")]
        return busy == [0, 0]

    await eventually(is_idle)
    return await worker.metric("infer_total")
