"""A shadow answers what customers were answered and leaves only numbers behind, with real Kafka and Redis."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest_asyncio
from redis.asyncio import Redis

from ops.operate.recording.file import BYTES, Header, RecordedRequest, RecordingWriter
from shared.wire.codec import decode_observation, msgpack_encode
from shared.wire.messages import ChatRequest
from shared.wire.reports import Observation
from shared.wire.shadow import LiveAnswer
from tests.support.system import MakeSystem, System, eventually
from tests.support.wire import Client

LIVE = LiveAnswer(request_id="r1", revision="old", output_text="Two weeks.")


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    return await new_system(worker__fake_prefill_ms_per_token=0.01, kv__host_mib=0)


async def observed(system: System, number: int) -> list[Observation]:
    async with system.reading("chat.observations") as tap:

        async def all_there() -> list[Any]:
            records = await tap.to_the_end()
            return records if len(records) >= number else []

        await eventually(all_there)
        return [decode_observation(record.value) for record in tap.records]


async def typed(system: System, *words: str) -> str:
    """Return what `replyline …` prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "ops.cli", *words],
        env=os.environ | system.environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


async def test_a_shadow_with_equal_weights_gives_equal_answers_to_no_customer(
    system: System, unique: Callable[[str], str]
) -> None:
    assert "epoch 1" in await typed(system, "versions", "shadow", "1.0")
    worker, shadow, gateway = system.worker(), system.worker(worker__lane="shadow"), system.gateway()
    for service in (worker, shadow, gateway):
        await service.ready()
    await eventually(lambda: gateway.logged("worker_found", lane="shadow") and gateway.logged("versions_changed"))
    session = unique("shadowed")
    async with Client.connect(gateway.ws, session_id=session) as client:
        ends = [await client.ask(f"Question {number}?", max_output_tokens=24, seed=7) for number in range(3)]
    seen = await observed(system, 3)
    assert {each.response_id for each in seen} == {end.response["id"] for end in ends}
    assert [each.compared and (each.compared.equal, each.compared.score) for each in seen] == [(True, 1.0)] * 3
    assert os.getpriority(os.PRIO_PROCESS, shadow.child.process.pid) == 19
    assert len(await system.turns(session, at_least=3)) == 3
    assert not [line for line in gateway.logged() if ".shadow" in str(line.get("request_id"))]
    async with system.reading("chat.replies") as tap:
        assert not [record for record in await tap.to_the_end() if b".shadow" in record.value]
    assert await shadow.metric("replyline_worker_shadows_total", outcome="equal") == 3
    assert await shadow.metric("replyline_worker_outcomes_total") == 0
    assert await gateway.metric("replyline_gateway_shadowed_total", outcome="sent") == 3
    assert "answers compared: 3\nequal: 100.0%" in await typed(system, "shadow", "report")


async def test_a_shadow_writes_nothing_to_redis_or_any_other_topic(system: System) -> None:
    shadow = await system.worker(worker__lane="shadow").ready()
    now = int(time.time() * 1_000)
    asked = ChatRequest(
        id="r1.shadow",
        session_id="s",
        tenant="demo",
        input="How long may I return it?",
        max_output_tokens=24,
        created_unix_ms=now,
        deadline_unix_ms=now + 30_000,
        first_token_unix_ms=now + 30_000,
        answered=LIVE,
    )
    for value in (b"\xc1 my words", msgpack_encode(asked)):
        await system.produce("chat.requests.shadow.short", value, key=b"demo/s")
    [seen] = await observed(system, 1)
    assert seen.compared is not None
    assert not seen.compared.equal
    assert await shadow.stop() == 0
    async with Redis.from_url(system.redis.url) as redis:
        assert await redis.keys() == []
    for topic in ("chat.replies", "chat.replies.external", "chat.dead-letters", "chat.requests.short"):
        async with system.reading(topic) as tap:
            assert await tap.to_the_end() == [], topic


async def test_a_recording_is_replayed_to_two_models_with_the_same_history(system: System, tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r.gz", Header(version=1, started_unix_ms=1, tokenizer=BYTES, topics=()))
    for number in range(3):
        writer.write(
            RecordedRequest(
                at_ms=number,
                bucket="short",
                tenant="demo",
                session="a",
                input_tokens=3,
                max_output_tokens=12,
                first_token_ms=100,
                deadline_ms=200,
                text=f"Question {number}?",
            )
        )
    writer.finish()
    told = await typed(system, "shadow", "replay", str(tmp_path / "r.gz"), "--version", str(tmp_path))
    assert "answers compared: 3\nequal: 100.0%" in told
