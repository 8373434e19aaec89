"""The door on its port, compared with its own document by schemathesis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi

from gateway.http.server import HttpServer
from shared.kafka import Outgoing
from shared.sockets.listening import bind
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import Edge, done
from tests.support.fakes.openai_doors import door_of

CHECKS = (
    checks.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
)


class AnsweringProducer(FakeProducer):
    """Kafka with a worker that answers immediately."""

    edge: Edge

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        delivery = await super().enqueue(record)
        asyncio.get_running_loop().call_later(0.01, self._answer)
        return delivery

    def _answer(self) -> None:
        for asked in self.edge.asked:
            if self.edge.gateway.inflight.get(asked.id) is not None:
                self.edge.receive_replies([done(asked.id, "Here.", session_id=asked.session_id)])


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    producer = AnsweringProducer()
    producer.edge = edge = Edge(producer)
    door, listening = door_of(edge, drain_s=1), bind("127.0.0.1", 0)
    server = HttpServer(app=door.app(), settings=door.http.settings)
    serving = asyncio.create_task(server.serve(listening))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.stop()
    await serving
    await door.http.exchanges.stop()


async def test_a_client_that_sends_no_request_does_not_block_the_shutdown() -> None:
    """Nor does one that sends half a request; the others are served."""
    door, listening = door_of(Edge(), hello_timeout_s=1, drain_s=1), bind("127.0.0.1", 0)
    server = HttpServer(app=door.app(), settings=door.http.settings)
    serving = asyncio.create_task(server.serve(listening))
    port = listening.getsockname()[1]
    for half in (b"", b"GET /v1/models HTTP/1.1\r\nx: "):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half)
        assert await asyncio.wait_for(reader.read(), timeout=20) == b""
        writer.close()
    async with httpx2.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/v1/models")).status_code == 200
    server.stop()
    await serving


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # the server's thread draws at the same time
async def test_the_door_matches_its_document_and_never_fails(url: str) -> None:
    await asyncio.to_thread(_hold_to_document, url)


def _hold_to_document(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    statuses = set[int]()
    for found in schema.get_all_operations():

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=found.ok().as_strategy())
        def hold(case: Any) -> None:
            if isinstance(case.body, dict):
                case.body["model"] = "replyline"  # otherwise only its name would be checked
            statuses.add(case.call_and_validate(checks=list(CHECKS)).status_code)

        hold()
    assert {200, 404} <= statuses
    assert not [status for status in statuses if status >= 500]
