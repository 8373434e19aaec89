"""Clocks are changed while processes run: no deadline moves, and timestamps follow within seconds."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.chaos.faults.clocks import READ_EVERY_S, turn
from tests.support.standstill import InTime
from tests.support.system import CURSOR_SECRET, MakeSystem, eventually
from tests.support.wire import Client

QUESTION, TOKENS = "How do I track my parcel?", 8
SOFT_MS, HARD_MS = 1_000, 4_000
JUMPS_S = [way * size for size in (1.0, 60.0, 3_600.0) for way in (1, -1)]
ADOPTED_WITHIN_S = 10.0
SHARED = {"gateway__cursor_secret_file": CURSOR_SECRET, "admission__enabled": False}


async def jump(*clocks: Path, off_s: float) -> None:
    """They are read ten times a second."""
    for clock in clocks:
        turn(clock, off_s)
    await asyncio.sleep(2 * READ_EVERY_S)


async def model_answers(client: Client, first_token_ms: int = 8_000) -> bool:
    return (await client.ask(QUESTION, max_output_tokens=TOKENS, first_token_ms=first_token_ms)).outcome[2] == "model"


async def test_changing_a_gateways_clock_moves_no_deadline(
    new_system: MakeSystem, tmp_path: Path, in_time: InTime
) -> None:
    """It changes repeatedly while a question is open that no worker answers."""
    clock = tmp_path / "gateway.clock"
    gateway = await (await new_system(**SHARED)).gateway(clock=clock).ready()
    off_s = 0.0
    async with Client.connect(gateway.ws) as client:
        for jump_s in JUMPS_S:
            asked = await client.create(QUESTION, first_token_ms=SOFT_MS, deadline_ms=HARD_MS)
            off_s += jump_s
            await jump(clock, off_s=off_s)
            answer = await client.answer(asked)
            assert answer.outcome[2] == "faq"
            assert in_time(answer, SOFT_MS), f"the clock was set by {jump_s:+.0f} s: {answer.took_s:.2f} s"
            assert answer.response["timings"]["total_ms"] >= SOFT_MS - 1
        assert client.count("response.done") == len(JUMPS_S)


async def test_a_corrected_clock_is_used_within_seconds(new_system: MakeSystem, tmp_path: Path) -> None:
    """Its gateway and its worker began an hour behind another machine's; then all agree."""
    wrong, right = tmp_path / "wrong.clock", tmp_path / "right.clock"
    system = await new_system(**SHARED)
    turn(wrong, -3_600.0)
    gateway, _ = await asyncio.gather(system.gateway(clock=wrong).ready(), system.worker(clock=right).ready())
    async with Client.connect(gateway.ws) as client:
        assert not await model_answers(client, 2_000), "to the worker its requests are an hour old"
        turn(wrong, 0.0)
        put_right_s = time.monotonic()
        await eventually(lambda: gateway.logged("clock_set"), limit_s=ADOPTED_WITHIN_S)
        (line,) = gateway.logged("clock_set")
        assert line["by_ms"] == pytest.approx(3_600_000, abs=10_000)
        assert await gateway.metric("replyline_clock_set_seconds") == pytest.approx(3_600, abs=10)
        assert await model_answers(client)
        assert time.monotonic() >= put_right_s


@pytest.mark.parametrize("off_s", [60.0, -3_600.0])
async def test_a_client_that_left_a_gateway_with_a_wrong_clock_waits_no_longer(
    new_system: MakeSystem, tmp_path: Path, in_time: InTime, off_s: float
) -> None:
    """That gateway dies with the question open, and the worker hangs: the next gateway ends it by the age of the
    cursor, not by the other's clock.
    """
    clock = tmp_path / "gateway.clock"
    turn(clock, off_s)
    system = await new_system(**SHARED)
    doomed, heir = system.gateway(clock=clock, gateway__reply_partition=0), system.gateway(gateway__reply_partition=1)
    await asyncio.gather(doomed.ready(), heir.ready())
    async with Client.connect(doomed.ws) as client:
        asked_at = time.monotonic()
        event_id = await client.create(QUESTION, first_token_ms=HARD_MS, deadline_ms=HARD_MS)
        created, came_at = await client.created(event_id), time.monotonic()
        session_id = client.session_id
        await asyncio.sleep(HARD_MS / 4_000)
        doomed.kill()
    age_ms = round((time.monotonic() - came_at) * 1_000)
    async with Client.connect(heir.ws, session_id=session_id, cursor=created["cursor"], age_ms=age_ms) as client:
        if off_s > 0:
            assert client.events[0]["recovered"]
            await client.of_type("response.done")
            client.events, client.times = [created, *client.events[1:]], [asked_at, *client.times[1:]]
            client._asked[event_id] = asked_at
            answer = client.check(event_id)
        else:
            assert not client.events[0]["recovered"], "to this gateway it is an hour old"
            left_ms = HARD_MS - round((time.monotonic() - asked_at) * 1_000)
            asked = await client.create(QUESTION, event_id=event_id, first_token_ms=left_ms, deadline_ms=left_ms)
            client._asked[event_id] = asked_at
            answer = await client.answer(asked)
        assert answer.outcome[2] == "faq"
        assert in_time(answer, HARD_MS), f"{answer.took_s:.2f} s"
