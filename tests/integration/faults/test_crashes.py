"""A process that dies or drains loses no answer and repeats none, and offsets follow the answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import psutil
import pytest
import pytest_asyncio

from tests.support.system import Service, System, eventually
from tests.support.wire import MSGPACK, Answer, Bystander, Client

pytestmark = pytest.mark.system(
    workers=0,
    worker__fake_decode_ms_per_step=10,
    worker__slots=4,
    kafka__session_timeout_ms=2_000,
    gateway__messages_per_minute=100_000,
    promise__first_token_ms=10_000,
    promise__deadline_ms=60_000,
)

WHOLE = ("incomplete", "max_output_tokens", "model")


class Workers:
    """One static member of the group at a time."""

    current: Service

    def __init__(self, system: System) -> None:
        self._system = system

    async def start(self) -> Service:
        """The next one."""
        self.current = await self._system.worker(worker__instance_id="worker-0").ready()
        return self.current


@pytest_asyncio.fixture(scope="module")
async def _workers(system: System) -> AsyncIterator[Workers]:
    workers = Workers(system)
    await workers.start()
    yield workers
    assert await workers.current.stop() == 0


@pytest_asyncio.fixture
async def workers(_workers: Workers) -> Workers:
    """One worker runs when the test begins."""
    if not _workers.current.child.running:
        await _workers.start()
    return _workers


async def test_a_killed_workers_answers_are_continued_by_the_next_one(gateway: Service, workers: Workers) -> None:
    """Killed in mid-answer: the text continues at its position, each character once, and there is one end."""
    async with Client.connect(gateway.ws) as client:
        asked = [await client.create(f"Question {number}", max_output_tokens=150) for number in range(3)]
        for event_id in asked:
            await client.text_of(event_id, chars=20)
        workers.current.kill()
        await workers.start()
        answers = [await client.answer(event_id) for event_id in asked]
        assert [answer.outcome for answer in answers] == [WHOLE] * 3
        assert [len(answer.text) for answer in answers] == [150] * 3
        assert client.count("response.done") == 3
    for number, answer in enumerate(answers):
        async with Client.connect(gateway.ws) as fresh:
            whole = await fresh.ask(f"Question {number}", max_output_tokens=150)
        if number == 0:
            assert whole.text == answer.text


async def test_offsets_are_committed_after_the_answers_and_in_order(
    system: System, gateway: Service, workers: Workers
) -> None:
    """Of two requests in a partition the later ends first: nothing is committed and a crash loses neither; the answered
    one is answered again from history, and dropped by the gateway.
    """
    async with Client.connect(gateway.ws) as client, system.reading("chat.requests.short") as tap:
        long = await client.create("A long one", max_output_tokens=600)
        name = (await client.text_of(long, chars=3)).encode()
        short = await client.ask("A short one", max_output_tokens=5)
        record = await tap.until(lambda record: ("ce_id", name) in record.headers)
        place = ("chat.requests.short", record.partition)
        assert (await system.committed()).get(place, 0) <= record.offset
        dropped = await gateway.metric("replyline_gateway_replies_dropped_total", why="unknown")
        workers.current.kill()
        assert (await system.committed()).get(place, 0) <= record.offset
        worker = await workers.start()
        answer = await client.answer(long)
        assert (answer.outcome, len(answer.text)) == (WHOLE, 600)
        assert client.check(short.created["event_id"]).response == short.response
        assert client.count("response.done") == 2

        async def is_committed() -> bool:
            return (await system.committed()).get(place, 0) == record.offset + 2

        await eventually(is_committed)
        assert await worker.metric("infer_total") == 1, "only the unanswered request is computed"
        await eventually(lambda: _has_dropped_more(gateway, dropped))
        turns = await system.turns(client.session_id, at_least=2)
        assert sorted(turn.user for turn in turns) == ["A long one", "A short one"]


async def _has_dropped_more(gateway: Service, than: float) -> bool:
    return await gateway.metric("replyline_gateway_replies_dropped_total", why="unknown") > than


async def test_a_worker_killed_between_answer_and_commit_answers_twice_and_the_client_gets_it_once(
    gateway: Service, workers: Workers
) -> None:
    async with Client.connect(gateway.ws) as client:
        answers = []
        for number in range(2):
            answers.append(await client.ask(f"Question {number}", max_output_tokens=20))
            workers.current.kill()
            await workers.start()
        assert [answer.outcome for answer in answers] == [WHOLE] * 2
        assert (await client.ask("And now?", max_output_tokens=5)).outcome == WHOLE
        assert client.count("response.done") == client.count("response.created") == 3


async def test_another_worker_takes_over_from_a_dead_one(system: System, gateway: Service, workers: Workers) -> None:
    """Two share the partitions; one dies for good, and after the session timeout the other answers its requests."""
    other = await system.worker().ready()
    before = await workers.current.metric("infer_total")

    async def ask(number: int) -> Answer:
        async with Client.connect(gateway.ws, MSGPACK) as client:
            event_id = await client.create(f"Question {number}", max_output_tokens=60)
            await client.created(event_id)
            return await client.answer(event_id)

    async def both_serve() -> bool:
        await ask(0)
        more, less = [await each.metric("infer_total") for each in (workers.current, other)]
        return more > before and less > 0

    asking: list[asyncio.Task[Answer]] = []

    async def other_is_busy() -> bool:
        """The assignment of a conversation's partition is random."""
        asking.extend(asyncio.create_task(ask(number)) for number in range(3))
        return await _is_busy(other)

    await eventually(both_serve)
    await eventually(other_is_busy)
    other.kill()
    answers = await asyncio.gather(*asking)
    assert [(answer.outcome, len(answer.text)) for answer in answers] == [(WHOLE, 60)] * len(asking)


async def _is_busy(worker: Service) -> bool:
    return await worker.metric("replyline_worker_load", what="used") > 0


async def test_a_worker_stopped_by_sigterm_finishes_its_answers(
    system: System, gateway: Service, workers: Workers
) -> None:
    """Twelve answers on four slots, and SIGTERM in the middle: all complete, all committed, status 0, nothing left."""
    worker = workers.current
    before, clients = len(worker.logged("answered")), 3
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_ask_four(gateway)) for _ in range(clients)]
        await eventually(lambda: _is_busy(worker))
        children = psutil.Process(worker.child.process.pid).children(recursive=True)
        assert await worker.stop() == 0
        replaced = await workers.start()
    answers = [answer for task in asking for answer in task.result()]
    assert [(answer.outcome, len(answer.text)) for answer in answers] == [(WHOLE, 100)] * clients * 4
    assert [line["unfinished"] for line in worker.logged("worker_stopped")] == [0]
    assert not worker.logged("raw")
    assert children == []
    served = len(worker.logged("answered")) - before + await replaced.metric("infer_total")
    assert served == clients * 4


async def _ask_four(gateway: Service) -> list[Answer]:
    async with Client.connect(gateway.ws) as client:
        asked = [await client.create(f"Question {number}", max_output_tokens=100) for number in range(4)]
        return [await client.answer(event_id) for event_id in asked]


async def test_workers_are_replaced_one_by_one_without_a_fallback(
    system: System, gateway: Service, workers: Workers
) -> None:
    """A rolling restart under load: every answer is the model's. The conversations' keys hash to all partitions, so the
    second worker is asked for any partition it gets.
    """
    names = [f"rolling-{number}" for number in range(10)]
    async with AsyncExitStack() as stack:
        asking = [await stack.enter_async_context(Bystander.beside(gateway.ws, session_id=name)) for name in names]

        def answered() -> int:
            return min(len(bystander.answers) for bystander in asking)

        await eventually(lambda: answered() > 2)
        second = await system.worker(worker__instance_id="worker-1").ready()
        await eventually(lambda: _served_some(second), limit_s=45)
        seen = answered()
        assert await second.stop() == 0
        await eventually(lambda: answered() > seen + 2)


async def _served_some(worker: Service) -> bool:
    return await worker.metric("infer_total") > 0


async def test_a_gateway_stopped_by_sigterm_finishes_its_answers(system: System, workers: Workers) -> None:
    """Clients are notified first, get their answers, and are closed with 4001; new questions are refused."""
    gateway = await system.gateway(gateway__reply_partition=1).ready()
    async with Client.connect(gateway.ws) as client, Client.connect(gateway.ws, MSGPACK) as idle:
        asked = [await client.create(f"Question {number}", max_output_tokens=400) for number in range(4)]
        for event_id in asked:
            await client.text_of(event_id)
        stopping = asyncio.create_task(gateway.stop())
        for each in (client, idle):
            closing = await each.of_type("session.closing")
            assert closing["reason"] == "shutdown"
            assert 0 < closing["reconnect_after_ms"] <= 10_000
        await idle.create("One more?", event_id="late")
        error = await idle.error()
        assert (error["type"], error["code"], error["event_id"]) == ("overloaded_error", "shutting_down", "late")
        assert error["retryable"] is True
        with pytest.raises(OSError):  # noqa: PT011 - refused, under any of the kernel's names
            async with Client.connect(gateway.ws):
                pass
        for event_id in asked:
            answer = await client.answer(event_id)
            assert (answer.outcome, len(answer.text)) == (WHOLE, 400)
        assert await client.closed() == await idle.closed() == 4001
        assert await stopping == 0
    assert [line["unfinished"] for line in gateway.logged("gateway_stopped")] == [0]
    assert not gateway.logged("raw")


async def test_a_gateway_drains_no_longer_than_its_limit(system: System, workers: Workers) -> None:
    """Unfinished answers are abandoned and counted at the limit; the client is asked to reconnect."""
    gateway = await system.gateway(gateway__reply_partition=1, gateway__drain_s=0.3).ready()
    async with Client.connect(gateway.ws) as client:
        await client.text_of(await client.create("A long one", max_output_tokens=1_000))
        assert await gateway.stop() == 0
        assert await client.closed() == 4001
        assert client.count("response.done") == 0
    assert [line["unfinished"] for line in gateway.logged("gateway_stopped")] == [1]


async def test_a_killed_gateway_does_not_affect_the_system(system: System, workers: Workers) -> None:
    """Its clients' sockets break; the worker continues, and a new gateway on that partition works too."""
    gateway = await system.gateway(gateway__reply_partition=1).ready()
    async with Client.connect(gateway.ws) as client:
        session_id = client.session_id
        await client.text_of(await client.create("A question", max_output_tokens=100))
        gateway.kill()
        assert await client.closed() == 1006
    successor = await system.gateway(gateway__reply_partition=1).ready()
    async with Client.connect(successor.ws, session_id=session_id) as client:
        answer = await client.ask("Again", max_output_tokens=10)
    assert answer.outcome == WHOLE
    assert await successor.stop() == 0
