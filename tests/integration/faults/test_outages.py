"""Kafka or Redis absent at start, or gone for a while: clients are still answered, and service resumes."""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
import pytest_asyncio

from ops.stack.kafka_broker import KafkaBroker
from tests.support.standstill import InTime
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Answer, Client

RETURNS = "How do I return an item?"
Pair = tuple[Service, Service]


@pytest_asyncio.fixture(scope="module")
async def _system(make_system: MakeSystem, _own_broker: KafkaBroker) -> System:
    return await make_system(
        broker=_own_broker.bootstrap,
        worker__fake_decode_ms_per_step=10,
        kafka__session_timeout_ms=2_000,
        kafka__request_timeout_ms=2_000,
        redis__timeout_ms=500,
        gateway__messages_per_minute=100_000,
        gateway__drain_s=2,
        worker__drain_s=2,
    )


@pytest.fixture
def system(_system: System, own_broker: KafkaBroker) -> System:
    """A system on a broker and a Redis that run when the test begins."""
    _system.redis.start()
    return _system


@pytest.fixture
def new(system: System) -> Iterator[Callable[[], Pair]]:
    """Start the test's own gateway and worker without waiting for them."""
    made: list[Service] = []

    def start() -> Pair:
        pair = system.gateway(gateway__reply_partition=1), system.worker()
        made.extend(pair)
        return pair

    yield start
    system.end(made)


@pytest_asyncio.fixture(scope="module")
async def _pair() -> list[Service]:
    return []


@pytest_asyncio.fixture
async def pair(system: System, _pair: list[Service]) -> Pair:
    """Both, as the previous test left them, or restarted if it ended them."""
    if not _pair or not all(service.child.running for service in _pair):
        _pair[:] = system.gateway(), system.worker()
    gateway, worker = await asyncio.gather(*(service.ready() for service in _pair))
    return gateway, worker


async def until_the_model_answers(client: Client, in_time: InTime, *, limit_s: float = 30) -> Answer:
    """Ask until the model answers; every earlier answer is in time."""

    async def ask() -> Answer | None:
        answer = await client.ask(RETURNS, first_token_ms=1_000, max_output_tokens=5)
        assert in_time(answer, 1_000)
        return answer if answer.outcome[2] == "model" else None

    answer: Answer = await eventually(ask, limit_s=limit_s)
    return answer


def lines_about(service: Service, what: str) -> list[str]:
    """Return how often its log reports the service away."""
    return [str(line) for line in service.logged("unavailable") if what in str(line.get("what", ""))]


def told(*services: Service, what: str) -> list[tuple[int, int]]:
    """Return how often each has reported the service away, and back."""
    return [tuple(len(each.logged(event, what=what)) for event in ("unavailable", "available")) for each in services]  # type: ignore[misc]


async def test_without_kafka_the_faq_answers_and_with_it_the_model(
    new: Callable[[], Pair], own_broker: KafkaBroker, in_time: InTime
) -> None:
    """Absent at start: the page is served, /ready names the missing service, only the gateway takes traffic without it,
    and one line reports it. Then it comes.
    """
    own_broker.halt()
    gateway, worker = new()
    await eventually(lambda: _is_healthy(gateway))
    await eventually(lambda: _is_healthy(worker))
    missing = b'"kafka":"no Kafka at ' + own_broker.bootstrap.encode()
    for service in (gateway, worker):
        await eventually(lambda: lines_about(service, "kafka"))  # noqa: B023
        await eventually(lambda: _is_told(service, missing))  # noqa: B023 - a worker loads its model first
    assert await gateway.status_of("/") == 200
    for service, status in ((gateway, 200), (worker, 503)):
        page = await service.get("/ready")
        assert page is not None
        assert page.status == status
    async with Client.connect(gateway.ws) as client:
        answer = await client.ask(RETURNS, first_token_ms=500)
        assert answer.outcome == ("completed", "stop", "faq")
        assert in_time(answer, 500)
        for service, lines in ((gateway, 1), (worker, 2)):  # a worker asks for its version before it loads the model
            assert len(lines_about(service, "kafka")) == lines
            assert not service.logged("raw")
        own_broker.start()
        await asyncio.gather(gateway.ready(), worker.ready())
        assert (await until_the_model_answers(client, in_time)).outcome == ("incomplete", "max_output_tokens", "model")
        assert client.count("error") == 0


async def test_processes_that_still_wait_for_kafka_end_on_sigterm(
    new: Callable[[], Pair], own_broker: KafkaBroker
) -> None:
    own_broker.halt()
    gateway, worker = new()
    await eventually(lambda: _is_healthy(gateway))
    await eventually(lambda: lines_about(gateway, "kafka"))
    await eventually(lambda: lines_about(worker, "kafka"))
    assert (await gateway.stop(), await worker.stop()) == (0, 0)
    assert not gateway.logged("raw")
    assert not worker.logged("raw")


async def test_without_redis_the_model_answers_and_with_it_it_remembers(
    system: System, new: Callable[[], Pair]
) -> None:
    """Absent at start: /ready names it, one line reports it, and no answer is later for it."""
    system.redis.stop()
    gateway, worker = new()
    await eventually(lambda: _misses(gateway, "redis"))
    async with Client.connect(gateway.ws) as client:
        for _ in range(3):
            answer = await client.ask(RETURNS, first_token_ms=8_000, max_output_tokens=5)
            assert answer.outcome[2] == "model"
        await client.send({"type": "session.delete"})
        error = await client.error()
        assert (error["type"], error["code"], error["retryable"]) == ("server_error", "history_unavailable", True)
        assert len(lines_about(gateway, "redis")) == 1
        assert {line["what"] for line in worker.logged("unavailable")} == {"redis", "redis for kv"}
        assert len(lines_about(worker, "redis")) == 2, "each use of it reports it once"
        system.redis.start()
        await asyncio.gather(gateway.ready(), worker.ready())
        await _until_remembered(system, client)
        assert [len(service.logged("available", what="redis")) for service in (gateway, worker)] == [1, 1]
        await client.send({"type": "session.delete"})
        await client.of_type("session.deleted")
        assert await system.turns(client.session_id) == []


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_kafka_goes_and_comes_back(pair: Pair, own_broker: KafkaBroker, in_time: InTime, kill: bool) -> None:
    """The answer in flight ends by its deadline, new ones come from the FAQ in time, then the model again. Each is
    logged once.
    """
    (gateway, worker), before = pair, told(*pair, what="kafka")
    async with Client.connect(gateway.ws) as client:
        assert (await client.ask(RETURNS, max_output_tokens=5)).outcome[2] == "model"
        running = await client.create(RETURNS, max_output_tokens=500, deadline_ms=4_000)
        await client.text_of(running, chars=5)
        own_broker.halt(kill=kill)
        during = [await client.ask(RETURNS, first_token_ms=400, deadline_ms=1_000) for _ in range(5)]
        cut = await client.answer(running)
        assert {answer.outcome for answer in during} == {("completed", "stop", "faq")}
        assert all(in_time(answer, 400) for answer in during)
        assert cut.outcome == ("incomplete", "deadline", "model")
        await eventually(lambda: _misses(gateway, "kafka"))
        assert await gateway.status_of("/health") == 200
        own_broker.start()
        await until_the_model_answers(client, in_time)
        await gateway.ready()
        assert (await client.ask(RETURNS, max_output_tokens=20)).outcome == (
            "incomplete",
            "max_output_tokens",
            "model",
        )
        assert client.count("response.done") == client.count("response.created")
        assert client.count("error") == 0
    await worker.ready()
    after = [(away + 1, back + 1) for away, back in before]
    await eventually(lambda: told(*pair, what="kafka") == after)
    for service in pair:
        assert not service.logged("raw")


@pytest.mark.parametrize("how", ["killed", "hanging"])
async def test_redis_goes_and_comes_back(system: System, pair: Pair, how: str) -> None:
    """As a cache: the model answers as before. Both processes log it once."""
    (gateway, worker), ((away, back),) = pair, told(pair[1], what="redis")
    async with Client.connect(gateway.ws) as client:
        await client.ask(RETURNS, max_output_tokens=5)
        if how == "killed":
            system.redis.kill()
        else:
            system.redis.signal(19)  # SIGSTOP
        try:
            for _ in range(3):
                answer = await client.ask(RETURNS, first_token_ms=8_000, max_output_tokens=5)
                assert answer.outcome[2] == "model", "a hanging Redis delays one answer, and only by a second"
            assert told(worker, what="redis") == [(away + 1, back)]
            assert await worker.metric("replyline_history_unavailable_total") >= 1
            assert (await gateway.status_of("/ready"), await worker.status_of("/ready")) == (200, 200)
        finally:
            system.redis.signal(18)  # SIGCONT
            system.redis.start()
        await _until_remembered(system, client)
        # The turn is stored a moment before the line.
        await eventually(lambda: told(worker, what="redis") == [(away + 1, back + 1)])


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_processes_end_on_sigterm_while_kafka_is_gone(pair: Pair, own_broker: KafkaBroker, kill: bool) -> None:
    """Undelivered records delay them by no more than the drain limit and a margin: `stop` waits no longer."""
    gateway, worker = pair
    async with Client.connect(gateway.ws) as client:
        event_id = await client.create(RETURNS, max_output_tokens=500)
        await client.text_of(event_id, chars=5)
        own_broker.halt(kill=kill)
        assert (await client.ask(RETURNS, first_token_ms=200)).outcome[2] == "faq"
        assert await asyncio.gather(gateway.stop(), worker.stop()) == [0, 0]
        assert await client.closed() == 4001
    for service in (gateway, worker):
        assert not service.logged("raw")


async def _is_told(service: Service, what: bytes) -> bool:
    page = await service.get("/ready")
    return page is not None and what in page.body


async def _is_healthy(service: Service) -> bool:
    return await service.status_of("/health") == 200


async def _misses(gateway: Service, *names: str) -> bool:
    """Return whether it takes traffic and reports exactly these services as missing."""
    page = await gateway.get("/ready")
    return page is not None and page.status == 200 and set(json.loads(page.body).get("missing", ())) == set(names)


async def _until_remembered(system: System, client: Client) -> None:
    async def is_remembered() -> bool:
        answer = await client.ask(RETURNS, max_output_tokens=5)
        return answer.response["id"] in [turn.request_id for turn in await system.turns(client.session_id)]

    await eventually(is_remembered)
