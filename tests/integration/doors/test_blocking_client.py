"""`Replyline` asks, cancels, erases and reports refusals to a caller without an event loop."""

import asyncio

import pytest

from shared.client import ConnectFailed, Refused, Replyline, ResponseCreate, ResponseCreated, ResponseDelta
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System

pytestmark = STANDARD
LONG = ResponseCreate(event_id="long", input="Tell me all of it", max_output_tokens=2_000)


def use(url: str) -> None:
    with Replyline(url) as client:
        events = client.ask(LONG)
        assert isinstance(next(events), ResponseCreated)
        assert isinstance(next(events), ResponseDelta)
        client.cancel(LONG.event_id)
        *_, done = events
        assert done.response.status == "cancelled"  # type: ignore[union-attr]
        for _ in client.ask("And what else?"):
            break  # its answer continues at the gateway, unread
        first = client.answer("Who are you?")
        assert first.output_text
        assert first.usage.input_tokens > 0
        client.erase()
        with pytest.raises(Refused, match=r"^input_too_long: ") as refused:
            client.answer("word " * 10_000)
        assert (refused.value.code, refused.value.retriable) == ("input_too_long", False)
        assert client.session is not None
    with Replyline(url, session_id=client.session.session_id) as again:
        assert again.session is not None
        assert again.session.session_id == client.session.session_id


async def test_the_blocking_client_asks_cancels_erases_and_raises_refusals(gateway: Service) -> None:
    await asyncio.to_thread(use, gateway.ws)


async def test_the_blocking_client_raises_when_its_gateway_is_gone(system: System) -> None:
    doomed = await system.gateway(gateway__reply_partition=2).ready()

    def lose() -> None:
        with Replyline(doomed.ws, patience_s=0) as client:
            events = client.ask(LONG)
            next(events)
            doomed.kill()
            with pytest.raises(ConnectFailed, match="was lost"):
                list(events)

    await asyncio.to_thread(lose)
