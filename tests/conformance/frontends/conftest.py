"""One system for every suite over the front ends, and a client that is served throughout."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conformance.frontends.front_ends import FRONT_ENDS, PAGE, STEP_MS, FrontEnd
from tests.support.system import Service, System
from tests.support.wire import Bystander, Client


@pytest.fixture(params=FRONT_ENDS, ids=lambda front: front.name)
def front(request: pytest.FixtureRequest) -> FrontEnd:
    found: FrontEnd = request.param
    return found


SYSTEM = pytest.mark.system(
    worker__fake_decode_ms_per_step=STEP_MS,
    worker__slots=8,
    worker__max_waiting=8,
    gateway__messages_per_minute=100_000,
    gateway__hello_timeout_s=30,
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run all suites on one system."""
    module = item.getparent(pytest.Module)
    if module is not None and module.get_closest_marker("system") is None:
        module.add_marker(SYSTEM)


@pytest_asyncio.fixture(scope="module")
async def strict(system: System) -> Service:
    """A gateway with narrow limits."""
    return await system.gateway(
        gateway__reply_partition=1,
        gateway__allowed_origins=PAGE,
        gateway__max_connections=3,
        gateway__max_inflight=5,
        gateway__messages_per_minute=12,
        gateway__max_message_bytes=2_048,
        gateway__hello_timeout_s=2.5,
        gateway__heartbeat_s=1.2,
    ).ready()


@pytest_asyncio.fixture(scope="module", autouse=True)
async def bystander(gateway: Service) -> AsyncIterator[Bystander]:
    """A client that is served on the same gateway throughout."""
    async with Bystander.beside(gateway.ws) as bystander:
        yield bystander
    assert bystander.answers


@pytest_asyncio.fixture
async def client(gateway: Service, front: FrontEnd) -> AsyncIterator[Client]:
    """A connection that must still be served when the test ends."""
    async with Client.connect(gateway.ws, front.form) as client:
        yield client
        if client.socket.close_code is None:
            assert (await client.ask("Still there?", event_id="at-the-end", max_output_tokens=2)).text
