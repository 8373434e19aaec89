"""A record that kills each worker kills four, and affects no other request."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgpack
import pytest

from tests.integration.support.deadly_worker import DEADLY
from tests.support.system import MakeSystem, Service, System

SESSION_MS = 2_500
NEIGHBOURS = 6


async def kept_alive(system: System, deaths: list[Service]) -> None:
    """Two workers, each restarted when it dies, as compose does."""
    workers = [system.worker(module="tests.integration.support.deadly_worker") for _ in range(2)]
    while True:
        for place, worker in enumerate(workers):
            if not worker.child.running:
                deaths.append(worker)
                workers[place] = system.worker(module="tests.integration.support.deadly_worker")
        await asyncio.sleep(0.05)


@pytest.mark.timeout(180)
async def test_a_record_that_kills_workers_is_a_dead_letter_after_four_and_its_neighbours_are_answered(
    new_system: MakeSystem, unique: Callable[[str], str]
) -> None:
    """It has no deadline, so nothing else would end it."""
    system = await new_system(
        kafka__session_timeout_ms=SESSION_MS,
        worker__fake_decode_ms_per_step=20,
        promise__first_token_ms=120_000,
        promise__deadline_ms=120_000,
    )
    poison, deaths = unique("poison"), list[Service]()
    names = [f"{poison}-before-{number}" for number in range(NEIGHBOURS)]
    names += [poison, *(f"{poison}-after-{number}" for number in range(NEIGHBOURS))]
    ends: dict[str, dict[str, object]] = {}
    for name in names:
        asked = {"type": "chat.request", "id": name, "session_id": name, "max_output_tokens": 60}
        asked["input"] = DEADLY if name == poison else "Hello"
        await system.produce("chat.requests.short", msgpack.packb(asked), partition=0)
    living = asyncio.create_task(kept_alive(system, deaths))
    async with system.reading("chat.replies.external") as replies, system.reading("chat.dead-letters") as letters:

        def all_ended(record: object) -> bool:
            event = msgpack.unpackb(record.value)  # type: ignore[attr-defined]
            if event["type"] == "chat.done":
                ends.setdefault(event["request_id"], event)
            return ends.keys() >= set(names)

        await replies.until(all_ended, limit_s=120)
        letter = await letters.until(lambda record: True)
        assert len(await letters.to_the_end()) == 1
    living.cancel()
    with suppress(asyncio.CancelledError):
        await living
    assert len(deaths) == 4
    assert (ends[poison]["status"], ends[poison]["error"]["code"]) == ("failed", "poison")  # type: ignore[index]
    others = {name: (end["status"], end["source"]) for name, end in ends.items() if name != poison}
    assert set(others.values()) == {("incomplete", "model")}, "each has all of its sixty tokens"
    assert dict(letter.headers)["dead-letter-reason"] == b"poison"
    assert msgpack.unpackb(letter.value)["id"] == poison
