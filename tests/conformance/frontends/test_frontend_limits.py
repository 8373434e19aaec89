"""Excess is refused with a time to retry and costs no other client; a dead connection is closed."""

from tests.conformance.frontends.front_ends import LONG, FrontEnd
from tests.support.system import Service, eventually
from tests.support.wire import Client

# --- limits


async def cancel(client: Client, events: list[str]) -> None:
    for event_id in events:
        await client.send({"type": "response.cancel", "target_event_id": event_id})
        await client.answer(event_id)


async def test_a_request_beyond_the_connections_in_flight_limit_is_refused(client: Client) -> None:
    """Once the others have ended, another is accepted."""
    events = [await client.create(f"Number {number}", max_output_tokens=LONG) for number in range(4)]
    fifth = await client.create("One too many", max_output_tokens=40)
    error = await client.error()
    assert (error["type"], error["code"], error["event_id"]) == ("rate_limit_error", "too_many_inflight", fifth)
    assert error["retryable"] is True
    await cancel(client, events)
    assert len((await client.ask("Now?", event_id=fifth, max_output_tokens=3)).text) == 3


async def test_a_request_beyond_the_gateways_in_flight_limit_is_refused(strict: Service, front: FrontEnd) -> None:
    async with Client.connect(strict.ws, front.form) as one, Client.connect(strict.ws, front.form) as other:
        events = [await one.create(f"Number {number}", max_output_tokens=LONG) for number in range(4)]
        last = await other.create("Number 4", max_output_tokens=LONG)
        for client, event_id in [*((one, event_id) for event_id in events), (other, last)]:
            await client.created(event_id)
        await other.create("Number 5", event_id="too-many")
        error = await other.error()
        assert (error["type"], error["code"], error["event_id"]) == ("overloaded_error", "queue_full", "too-many")
        assert error["retry_after_ms"] > 0
        await cancel(one, events)
        await cancel(other, [last])


async def test_too_many_messages_a_minute_are_refused_with_the_time_to_wait(strict: Service, front: FrontEnd) -> None:
    """Unreadable messages count as well; pongs do not."""
    async with Client.connect(strict.ws, front.form) as client:
        for _ in range(5):
            await client.send_raw(front.malformed[1])
        for _ in range(5):
            await client.send({"type": "response.cancel", "response_id": "none"})
        await eventually(lambda: client.count("error") == 10)
        for _ in range(30):
            await client.send({"type": "pong"})
        seen = len(client.events)
        for _ in range(4):
            await client.send({"type": "response.cancel", "response_id": "none"})
        error = await client.until(
            lambda event: event["type"] == "error" and event["error"]["code"] == "rate_limited", since=seen
        )
        assert error["error"]["type"] == "rate_limit_error"
        assert error["error"]["retryable"] is True
        assert 0 < error["error"]["retry_after_ms"] <= 5_000
        assert client.socket.close_code is None


async def test_a_connection_beyond_the_limit_is_told_when_to_retry(strict: Service, front: FrontEnd) -> None:
    """Existing connections stay, and a closed one makes room."""
    await eventually(lambda: _nobody_on(strict))
    async with Client.connect(strict.ws, front.form) as one, Client.connect(strict.ws, front.form) as two:
        async with Client.connect(strict.ws, front.form):
            async with Client.connect(strict.ws, front.form, start=False) as fourth:
                assert await fourth.closed() == 4009
                [error] = [event["error"] for event in fourth.events if event["type"] == "error"]
                assert (error["code"], error["retryable"]) == ("too_many_connections", True)
                assert error["retry_after_ms"] > 0
                assert await strict.status_of("/ready") == 503
            assert (one.socket.close_code, two.socket.close_code) == (None, None)
        await eventually(lambda: _is_held(strict, 2))
        async with Client.connect(strict.ws, front.form) as again:
            assert len((await again.ask("Hello", max_output_tokens=2)).text) == 2


async def _nobody_on(gateway: Service) -> bool:
    return await _is_held(gateway, 0)


async def _is_held(gateway: Service, number: int) -> bool:
    return await gateway.metric("replyline_gateway_connections") == number


# --- heartbeat


async def test_the_gateway_pings_and_a_client_that_answers_stays(strict: Service, front: FrontEnd) -> None:
    async with Client.connect(strict.ws, front.form) as client:
        await eventually(lambda: client.count("ping") >= 3)
        assert client.socket.close_code is None


async def test_a_client_that_does_not_answer_pings_is_closed_with_4012(strict: Service, front: FrontEnd) -> None:
    async with Client.connect(strict.ws, front.form, pong=False) as client:
        assert await client.closed() == 4012
        assert client.count("ping") == 2
