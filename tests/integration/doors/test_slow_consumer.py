"""A client that does not read costs other clients nothing, and is closed at a limit."""

import asyncio

import pytest

from tests.integration.support.crowds import small_socket
from tests.support.system import Service, eventually
from tests.support.wire import JSON, MSGPACK, Bystander, Client

NUM_TOKENS = 3_000


pytestmark = pytest.mark.system(
    # The first closes half a second after its limit; the second waits for as long as the test does.
    gateways=(
        {"gateway__slow_consumer_s": 0.5},
        {"gateway__slow_consumer_s": 100},
    ),
    worker__max_length=8_192,
    worker__fake_decode_ms_per_step=1,  # slower than a round trip to Kafka; otherwise the worker merges deltas
    worker__reply_interval_ms=0,
    limits__max_output_tokens=4_000,
    limits__max_input_tokens=4_000,
    promise__first_token_ms=20_000,
    promise__deadline_ms=60_000,
    gateway__buffer_close_bytes=4_096,
    gateway__messages_per_minute=1_000_000,
)


@pytest.fixture(scope="module")
def patient(gateways: list[Service]) -> Service:
    return gateways[1]


async def test_unread_deltas_of_a_slow_client_are_merged_without_loss(patient: Service) -> None:
    """It gets the whole text without a gap, in fewer deltas, while others are served."""
    merged = await patient.metric("replyline_gateway_deltas_merged_total")
    async with (
        Bystander.beside(patient.ws, MSGPACK) as bystander,
        Client.connect(patient.ws, JSON, sock=await small_socket(patient)) as client,
    ):
        client.reading.clear()
        event_id = await client.create("Tell me all", max_output_tokens=NUM_TOKENS)

        await eventually(lambda: patient.logged("answered", output_tokens=NUM_TOKENS), limit_s=40)
        client.reading.set()
        answer = await client.answer(event_id)
        assert len(answer.text) == NUM_TOKENS
        assert await patient.metric("replyline_gateway_deltas_merged_total") > merged
        assert len(answer.deltas) < NUM_TOKENS
        assert len(bystander.answers) > 3


async def test_a_client_that_reads_nothing_is_closed_with_4008(gateway: Service) -> None:
    """Its answers exceed its buffer limit at the gateway; no other client is closed or delayed."""
    async with (
        Bystander.beside(gateway.ws) as bystander,
        Client.connect(gateway.ws, MSGPACK, sock=await small_socket(gateway)) as client,
    ):
        client.reading.clear()
        for number in range(4):
            await client.create(f"Tell me all of {number}", max_output_tokens=NUM_TOKENS)
        await eventually(lambda: _closed_as_slow(gateway, 1))
        client.reading.set()
        assert await client.closed() == 4008
        assert bystander.client.socket.close_code is None
    assert await gateway.metric("replyline_gateway_closes_total") == 1


async def test_a_client_that_only_sends_is_closed_with_4008(gateway: Service) -> None:
    """Unread errors count like text, so the buffer for one client is bounded."""
    before = await gateway.metric("replyline_gateway_closes_total", code="4008")
    async with (
        Bystander.beside(gateway.ws) as bystander,
        Client.connect(gateway.ws, sock=await small_socket(gateway)) as client,
    ):
        client.reading.clear()
        answered = len(bystander.answers)
        sent = asyncio.create_task(_flood(client))
        await eventually(lambda: _closed_as_slow(gateway, before + 1))
        assert len(bystander.answers) > answered, "others are served while it sends"
        client.reading.set()
        await client.closed()
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)


async def _flood(client: Client) -> None:
    while True:
        await client.send_raw("nonsense")
        await asyncio.sleep(0)


async def _closed_as_slow(gateway: Service, number: float) -> bool:
    return await gateway.metric("replyline_gateway_closes_total", code="4008") >= number
