"""A door without its services, and a client of it."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import BASE, door_of


@pytest.fixture
def edge() -> Edge:
    return Edge()


@pytest_asyncio.fixture
async def client(edge: Edge) -> AsyncIterator[httpx2.AsyncClient]:
    door = door_of(edge)
    transport = httpx2.ASGITransport(app=door.app())
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        yield client
    await door.http.exchanges.stop()
