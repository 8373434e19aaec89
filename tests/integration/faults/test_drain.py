"""A draining process accepts no new work, hands it over first, and finishes its running work."""

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Answer, Client

CONVERSATIONS = 12
CHARS = 40
LONG_CHARS = 600  # 24 s


@dataclass
class Conversation:
    """Asks one question after another until `stopping`."""

    client: Client
    stopping: asyncio.Event
    answers: list[Answer] = field(default_factory=list)

    async def run(self) -> None:
        while not self.stopping.is_set():
            self.answers.append(await self.client.ask(f"Question {len(self.answers)}", max_output_tokens=CHARS))


async def drain_status(service: Service) -> tuple[str, str]:
    """Return the status of /drain and of /ready."""
    drain, ready = await service.get("/drain"), await service.get("/ready")
    assert drain is not None
    assert ready is not None
    assert (drain.status, ready.status) == (200, 503)
    return json.loads(drain.body)["status"], json.loads(ready.body)["status"]


async def is_drained(service: Service) -> bool:
    return await drain_status(service) == ("drained", "drained")


@pytest.mark.parametrize("instance_id", ["", "static-0"])
async def test_a_worker_drained_under_load_loses_repeats_and_reorders_nothing(
    new_system: MakeSystem, instance_id: str
) -> None:
    """Its session would outlast the test: even a static member leaves the group by the drain alone."""
    system = await new_system(
        admission__enabled=False, worker__fake_decode_ms_per_step=10, worker__slots=4,
        kafka__session_timeout_ms=120_000, promise__first_token_ms=60_000, promise__deadline_ms=60_000,
    )  # fmt: skip
    leaving, gateway = system.worker(worker__instance_id=instance_id), await system.gateway().ready()
    staying, _ = await asyncio.gather(system.worker().ready(), leaving.ready())
    stopping = asyncio.Event()
    names = [f"talk-{number}" for number in range(CONVERSATIONS)]  # in all partitions, so that both workers are asked
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client.connect(gateway.ws, session_id=name)) for name in names]
        talks = [Conversation(client, stopping) for client in clients]
        running = [asyncio.create_task(talk.run()) for talk in talks]
        await eventually(lambda: has_answered(leaving, staying))
        drain, _ = await drain_status(leaving)  # on a slow machine it is drained before the next check
        assert drain == "draining"
        await eventually(lambda: is_drained(leaving))
        then = [len(talk.answers) for talk in talks]
        computed = await leaving.metric("infer_total")
        await eventually(lambda: all(len(talk.answers) > count + 2 for talk, count in zip(talks, then, strict=True)))
        stopping.set()
        await asyncio.gather(*running)
        assert await leaving.metric("infer_total") == computed
        await is_as_asked(system, talks)
    assert await leaving.stop() == 0
    assert leaving.logged("worker_stopped", unfinished=0)


@pytest.mark.parametrize(("instance_id", "joins_late"), [("", False), ("static-0", False), ("", True)])
async def test_a_worker_stopped_by_sigterm_hands_its_partitions_over_before_it_finishes(
    new_system: MakeSystem, instance_id: str, joins_late: bool
) -> None:
    """SIGTERM has the effect of /drain: a long answer delays no question of another conversation. A worker without
    peers hands over when the next one joins.
    """
    system = await new_system(
        admission__enabled=False, worker__fake_decode_ms_per_step=40, worker__slots=16, worker__drain_s=60,
        kafka__session_timeout_ms=120_000, promise__first_token_ms=90_000, promise__deadline_ms=90_000,
    )  # fmt: skip
    leaving, gateway = system.worker(worker__instance_id=instance_id), await system.gateway().ready()
    await leaving.ready()
    staying = None if joins_late else await system.worker().ready()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client.connect(gateway.ws, session_id=f"talk-{number}"))
            for number in range(CONVERSATIONS)
        ]
        asked = [await client.create("A long one", max_output_tokens=LONG_CHARS) for client in clients]
        await eventually(lambda: have_begun(clients))
        before = await staying.metric("replyline_rebalances_total") if staying else 0.0
        leaving.child.signal(signal.SIGTERM)
        staying = staying or await system.worker().ready()
        await eventually(lambda: has_more_rebalances(staying, before))
        assert leaving.child.running, "it still writes the long answers"
        late = await asyncio.gather(*(client.ask("A short one", max_output_tokens=CHARS) for client in clients))
        answers = [await client.answer(name) for client, name in zip(clients, asked, strict=True)]
    assert {answer.outcome for answer in (*late, *answers)} == {("incomplete", "max_output_tokens", "model")}
    assert {len(answer.text) for answer in answers} == {LONG_CHARS}
    assert await leaving.ended() == 0
    assert leaving.logged("worker_stopped", unfinished=0)


async def have_begun(clients: list[Client]) -> bool:
    return all(client.count("response.output_text.delta") for client in clients)


async def has_more_rebalances(worker: Service, before: float) -> bool:
    return await worker.metric("replyline_rebalances_total") > before


async def has_answered(*workers: Service) -> bool:
    return all([await worker.metric("infer_total") > CONVERSATIONS for worker in workers])


async def is_as_asked(system: System, talks: list[Conversation]) -> None:
    for talk in talks:
        for answer in talk.answers:
            assert answer.outcome == ("incomplete", "max_output_tokens", "model")
            assert len(answer.text) == CHARS
        assert talk.client.count("error") == 0
        assert talk.client.count("response.done") == len(talk.answers)
        # A turn answered by two workers is written twice, and the first counts.
        kept = list(dict.fromkeys(turn.user for turn in await system.turns(talk.client.session_id)))
        assert kept == [f"Question {number}" for number in range(len(talk.answers))][-len(kept) :]


async def test_a_gateway_is_drained_after_its_last_answer_and_stays_up(new_system: MakeSystem) -> None:
    """There is no worker: the question stays open until its client cancels it."""
    system = await new_system(admission__enabled=False, promise__first_token_ms=60_000, promise__deadline_ms=60_000)
    gateway = await system.gateway().ready()
    async with Client.connect(gateway.ws) as client:
        event_id = await client.create("Where is my parcel?")
        await client.created(event_id)
        assert await drain_status(gateway) == ("draining", "draining")
        await client.of_type("session.closing")
        await eventually(lambda: is_refused(gateway))
        late = await client.create("And now?")
        assert (await client.error())["code"] == "shutting_down", late
        await client.send({"type": "response.cancel", "target_event_id": event_id})
        await client.of_type("response.done")
        await eventually(lambda: is_drained(gateway))
    assert await gateway.metric("replyline_ready", check="draining") == 1
    assert gateway.child.running
    assert await gateway.stop() == 0


async def is_refused(gateway: Service) -> bool:
    return await gateway.get("/") is None
