"""Through the shipped proxy, with Kafka or Redis away: the page, sockets, FAQ answers, and resume."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import free_port
from tests.integration.support.cuts import Cut, ask_and_lose
from tests.support.servers.shipped_proxy import CHECKED_EVERY_S, ShippedProxy
from tests.support.standstill import InTime
from tests.support.system import CURSOR_SECRET, OPERATORS_PAGES, MakeSystem, Service, System, eventually, get
from tests.support.wire import Client

RETURNS = "How do I return an item?"
# As a proxy sees them: by several rounds of its health checks.
ROUNDS_S = 4 * CHECKED_EVERY_S


@pytest_asyncio.fixture(scope="module")
async def _system(make_system: MakeSystem, _own_broker: KafkaBroker) -> System:
    return await make_system(
        broker=_own_broker.bootstrap,
        worker__fake_decode_ms_per_step=10,
        worker__reply_interval_ms=0,
        kafka__session_timeout_ms=3_000,
        kafka__request_timeout_ms=2_000,
        redis__timeout_ms=500,
        gateway__cursor_secret_file=CURSOR_SECRET,
        gateway__port=free_port(),
        gateway__metrics_port=free_port(),
        gateway__drain_s=10,
        worker__drain_s=2,
    )


def start_gateways(system: System, gateways: list[Service]) -> None:
    """Start the gateways that are down. Each has its own loopback address, as a container has."""
    ports = {name: system.settings[name] for name in ("gateway__port", "gateway__metrics_port")}
    for number in range(2):
        if len(gateways) == number or not gateways[number].child.running:
            host = f"127.0.0.{2 + number}"
            gateways[number:] = [
                system.gateway(gateway__host=host, gateway__reply_partition=number, **ports),
                *gateways[number + 1 :],
            ]


@pytest_asyncio.fixture(scope="module")
async def _gateways(_system: System) -> list[Service]:
    gateways: list[Service] = []
    start_gateways(_system, gateways)
    await asyncio.gather(_system.worker().ready(), *(gateway.ready() for gateway in gateways))
    return gateways


@pytest_asyncio.fixture(scope="module")
async def _proxy(_gateways: list[Service], _system: System) -> AsyncIterator[ShippedProxy]:
    proxy = ShippedProxy(_gateways, _system.folder)
    yield proxy
    proxy.stop()


@pytest.fixture
def system(_system: System, own_broker: KafkaBroker) -> System:
    _system.redis.start()
    return _system


@pytest_asyncio.fixture
async def gateways(system: System, _gateways: list[Service]) -> list[Service]:
    """Both gateways run with every service available when the test begins."""
    start_gateways(system, _gateways)
    await asyncio.gather(*(gateway.ready() for gateway in _gateways))
    return _gateways


@pytest_asyncio.fixture
async def proxy(gateways: list[Service], _proxy: ShippedProxy) -> ShippedProxy:
    await eventually(lambda: is_served(_proxy))
    return _proxy


async def shown(proxy: ShippedProxy, path: str = "/") -> int | None:
    page = await asyncio.to_thread(get, f"http://{proxy.address}{path}")
    return page.status if page is not None else None


async def is_served(proxy: ShippedProxy) -> bool:
    return await shown(proxy) == 200


async def is_degraded(gateway: Service, missing: str) -> bool:
    page = await gateway.get("/ready")
    return page is not None and page.status == 200 and f'"degraded","missing":{{"{missing}":'.encode() in page.body


async def the_faq_answers(proxy: ShippedProxy, in_time: InTime) -> None:
    """Check that new clients get FAQ answers, more than once at each gateway."""
    assert await shown(proxy) == 200
    async with AsyncExitStack() as sockets:
        for _ in range(4):
            client = await sockets.enter_async_context(Client.connect(proxy.ws))
            answer = await client.ask(RETURNS, first_token_ms=400)
            assert answer.outcome == ("completed", "stop", "faq")
            assert in_time(answer, 400)
            assert client.count("error") == 0


async def the_model_answers(proxy: ShippedProxy) -> None:
    async def is_so() -> bool:
        async with Client.connect(proxy.ws) as client:
            answer = await client.ask(RETURNS, first_token_ms=1_000, max_output_tokens=5)
            return answer.outcome[2] == "model"

    await eventually(is_so)


async def ended(cut: Cut, gateway: Service) -> bool:
    return bool(gateway.logged("answered", request_id=cut.seen[0]["response_id"]))


async def test_without_kafka_clients_connect_and_the_faq_answers(
    proxy: ShippedProxy, gateways: list[Service], own_broker: KafkaBroker, in_time: InTime
) -> None:
    """Text that the workers had written before is resumed; every other question gets an FAQ answer marked with the
    broker as reason.
    """
    await the_model_answers(proxy)
    (here, there), cut = gateways, await ask_and_lose(gateways[0], 3)
    await eventually(lambda: ended(cut, here))
    own_broker.halt()
    for gateway in (here, there):
        await eventually(lambda: is_degraded(gateway, "kafka"))  # noqa: B023
        assert await gateway.status_of("/ready/strict") == 503
    await asyncio.sleep(ROUNDS_S)
    before = await of_broker(gateways)
    await the_faq_answers(proxy, in_time)
    assert await of_broker(gateways) == before + 4
    await resumed_by_who_holds_it(proxy, cut)
    own_broker.start()
    await asyncio.gather(*(gateway.ready() for gateway in gateways))
    await the_model_answers(proxy)


async def of_broker(gateways: list[Service]) -> float:
    counts = [await gateway.metric("replyline_gateway_fallbacks_total", reason="broker") for gateway in gateways]
    return sum(counts)


async def resumed_by_who_holds_it(proxy: ShippedProxy, cut: Cut) -> None:
    """The proxy spreads two clients over two gateways: the one that holds the answer resumes it immediately."""
    first = Client.connect(proxy.ws, cut.form, session_id=cut.session_id, cursor=cut.cursor)
    second = Client.connect(proxy.ws, cut.form, session_id=cut.session_id, cursor=cut.cursor)
    async with first as one, second as other:
        began = [client.events[0] for client in (one, other)]
        assert all(event["recovered"] for event in began)
        holder = one if began[0]["replayed"] else other
        done = await holder.of_type("response.done")
    assert done["response"]["source"] == "model"
    text = "".join(event["delta"] for event in [*cut.seen, *holder.events] if "delta" in event)
    assert text == done["response"]["output_text"]


async def test_gateways_that_start_without_kafka_accept_clients(
    proxy: ShippedProxy, system: System, gateways: list[Service], own_broker: KafkaBroker, in_time: InTime
) -> None:
    """Both are killed during the outage and return at the same addresses."""
    own_broker.halt()
    for gateway in gateways:
        gateway.kill()
    start_gateways(system, gateways)
    for gateway in gateways:
        await eventually(lambda: is_degraded(gateway, "kafka"))  # noqa: B023
    await eventually(lambda: is_served(proxy))
    await asyncio.sleep(ROUNDS_S)
    await the_faq_answers(proxy, in_time)
    own_broker.start()
    await asyncio.gather(*(gateway.ready() for gateway in gateways))
    await the_model_answers(proxy)


async def test_without_redis_the_model_answers_through_the_proxy(
    proxy: ShippedProxy, system: System, gateways: list[Service]
) -> None:
    """This includes gateways that started without Redis."""
    system.redis.stop()
    await the_model_answers(proxy)
    for gateway in gateways:
        gateway.kill()
    start_gateways(system, gateways)
    for gateway in gateways:
        await eventually(lambda: is_degraded(gateway, "redis"))  # noqa: B023
    await eventually(lambda: is_served(proxy))
    await asyncio.sleep(ROUNDS_S)
    await the_model_answers(proxy)


async def test_a_draining_gateway_gets_no_new_clients_and_stays_visible_to_operators(
    proxy: ShippedProxy, gateways: list[Service]
) -> None:
    """Its client's answer continues. Customers see no operator page."""
    assert {await shown(proxy, path) for path in OPERATORS_PAGES} == {404}
    leaving, staying = gateways
    async with Client.connect(leaving.ws) as client:
        running = await client.create(RETURNS, max_output_tokens=500)
        await client.text_of(running, chars=5)
        stopping = asyncio.create_task(leaving.stop())
        await eventually(lambda: is_draining(leaving))
        assert await shown(proxy) == 200
        before = await staying.metric("replyline_gateway_connections")
        async with Client.connect(proxy.ws), Client.connect(proxy.ws):
            assert await staying.metric("replyline_gateway_connections") == before + 2
        assert (await client.answer(running)).outcome[2] == "model"
        assert await stopping == 0


async def is_draining(gateway: Service) -> bool:
    page = await gateway.get("/ready")
    return page is not None and page.status == 503 and b'"draining":' in page.body
