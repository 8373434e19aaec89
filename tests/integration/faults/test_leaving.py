"""A stopping process hands over immediately the work that it cannot do any more."""

import asyncio
import signal
from collections.abc import Callable

import msgpack
import pytest

from tests.integration.support.hanging_worker import HANGS, HOLDS_ALL
from tests.support.system import MakeSystem, System, eventually, model_dir
from tests.support.wire import Client

PARTITIONS = 3


async def produce_to_all(system: System, name: str) -> list[bytes]:
    """Produce a request to each partition of the inbox; return their ids."""
    ids = [f"{name}-{number}" for number in range(PARTITIONS)]
    for number, request_id in enumerate(ids):
        request = {"type": "chat.request", "id": request_id, "session_id": request_id, "input": "Hello"}
        await system.produce("chat.requests", msgpack.packb(request), partition=number)
    return [request_id.encode() for request_id in ids]


async def test_the_inbox_of_a_draining_gateway_is_read_by_another(
    new_system: MakeSystem, unique: Callable[[str], str]
) -> None:
    """There is no worker, so its client's question stays in flight, and the gateway alive."""
    system = await new_system(
        admission__enabled=False, gateway__drain_s=19, promise__first_token_ms=60_000, promise__deadline_ms=60_000
    )
    leaving, other = await asyncio.gather(
        *(system.gateway(gateway__reply_partition=number).ready() for number in range(2))
    )

    async def both_route() -> bool:
        before = [await gateway.metric("replyline_gateway_requests_total") for gateway in (leaving, other)]
        await produce_to_all(system, unique("early"))
        await asyncio.sleep(0.5)
        after = [await gateway.metric("replyline_gateway_requests_total") for gateway in (leaving, other)]
        return all(now > then for then, now in zip(before, after, strict=True))

    await eventually(both_route)
    async with Client.connect(leaving.ws) as client, system.reading("chat.requests.short") as copies:
        event_id = await client.create("Where is my parcel?")
        await client.created(event_id)
        leaving.child.signal(signal.SIGTERM)
        await client.of_type("session.closing")
        for request_id in await produce_to_all(system, unique("late")):
            await copies.until(lambda record: ("ce_id", request_id) in record.headers)  # noqa: B023
        assert leaving.child.running
        assert client.count("response.done") == 0, "it is still draining"
        await client.send({"type": "response.cancel", "target_event_id": event_id})
        await client.of_type("response.done")
    assert await leaving.ended() == 0


@pytest.mark.parametrize("asked", [True, False])
async def test_a_worker_whose_device_hangs_ends_and_another_answers(new_system: MakeSystem, asked: bool) -> None:
    """It ends on request, or by itself when the step has taken too long. Its engine's thread never returns: it must not
    keep the process alive, nor the process its membership.
    """
    system = await new_system(
        admission__enabled=False, worker__drain_s=1, promise__first_token_ms=60_000, promise__deadline_ms=60_000
    )
    limits = {} if asked else {"worker__step_limit_s": 2}
    hanging = system.worker(module="tests.integration.support.hanging_worker", **limits)
    gateway, _ = await asyncio.gather(system.gateway().ready(), hanging.ready())
    async with Client.connect(gateway.ws) as client:
        await client.create("Where is my parcel?")
        await eventually(lambda: hanging.logged("raw", text=HANGS))
        assert await (hanging.stop() if asked else hanging.ended()) == 1
        assert hanging.logged("worker_stopped", unfinished=1)
        assert hanging.logged("engine_left_behind", level="error")
        system.worker()
        done = await client.of_type("response.done")
        assert done["response"]["source"] == "model"


async def test_a_worker_that_holds_the_interpreter_lock_for_ever_ends_too(
    new_system: MakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even its event loop runs: it handles no signal and no watchdog coroutine."""
    monkeypatch.setenv(HOLDS_ALL, "1")
    system = await new_system(
        admission__enabled=False, kafka__session_timeout_ms=2_500, promise__first_token_ms=60_000,
        promise__deadline_ms=60_000,
    )  # fmt: skip
    hanging = system.worker(module="tests.integration.support.hanging_worker", worker__step_limit_s=2)
    gateway, _ = await asyncio.gather(system.gateway().ready(), hanging.ready())
    async with Client.connect(gateway.ws) as client:
        await client.create("Where is my parcel?")
        assert await hanging.ended() == 1
        assert hanging.logged("raw", text=HANGS)
        system.worker()
        done = await client.of_type("response.done")
        assert done["response"]["source"] == "model"


@pytest.mark.timeout(300)
async def test_a_segfault_in_native_code_costs_one_worker(new_system: MakeSystem) -> None:
    """It happens in mid-answer. Another worker completes the answer without a visible break, and the log names the
    fault.
    """
    system = await new_system(
        admission__enabled=False, kafka__session_timeout_ms=2_500, model__dir=model_dir(), promise__deadline_ms=120_000,
        promise__first_token_ms=120_000, worker__engine="native", worker__max_length=1_024, worker__threads=1,
    )  # fmt: skip
    crashing = system.worker(module="tests.integration.support.crashing_worker")
    gateway, _ = await asyncio.gather(system.gateway().ready(), crashing.ready())
    async with Client.connect(gateway.ws) as client:
        await client.create("Tell me about parcels.")
        assert await crashing.ended() == -signal.SIGSEGV
        assert crashing.logged("raw", text="Fatal Python error: Segmentation fault")
        await system.worker().ready()
        done = await client.of_type("response.done")
    async with Client.connect(gateway.ws) as client:
        await client.create("Tell me about parcels.")
        undisturbed = await client.of_type("response.done")
    assert done["response"]["source"] == "model"
    assert done["response"]["output_text"] == undisturbed["response"]["output_text"]
