"""The records of `replyline bench produce` are those that a gateway would have written, and none is lost in silence."""

import asyncio

from shared.errors import BrokerUnavailable
from shared.records.requests import Defaults, open_request
from shared.settings import Settings
from shared.wire.topics import session_key
from tests.bench.produce import Sender, send_all


def test_a_record_is_read_as_a_gateways_is() -> None:
    """Value, key and headers agree with each other."""
    settings = Settings()
    record = Sender(settings, 1, Defaults.of(settings)).record(7)
    request = open_request(record.value, record.headers)
    assert request.id == f"bench_{7:024x}"
    assert record.topic == "chat.requests.short"
    assert record.key == session_key(settings.tenant, request.session_id)


async def test_what_the_broker_does_not_take_is_counted() -> None:
    async def send(number: int) -> "asyncio.Future[int]":
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if number % 300:
            future.set_result(number)
        else:
            future.set_exception(BrokerUnavailable("away"))
        return future

    assert await send_all(send, 1_200) == 4
