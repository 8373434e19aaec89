"""SIGKILL of the gateway in the middle of a stream, at every door: the answer continues at another gateway."""

import asyncio
import math
import os
import secrets
from collections import defaultdict

import pytest

from tests.proofs.doors.conftest import Tried
from tests.proofs.doors.streams import ALL, DoorStream
from tests.support.rows import Rows
from tests.support.system import eventually

_CHARS = 200  # of the shortest text that is cut
_ROUNDS = int(os.environ.get("DOORS_ROUNDS", "20"))
_MOST_S = 1.0


async def test_a_killed_gateways_streams_go_on(scripted: Tried, rows: Rows) -> None:
    """One kill cuts a stream of each door. No text is lost or shown twice, and no answer is computed twice."""
    survivor = scripted.gateways[1]
    texts = await _texts(scripted, _ROUNDS)
    broken, again_s = defaultdict[str, list[str]](list), defaultdict[str, list[float]](list)
    before = await scripted.worker.metric("infer_total")
    for number, (question, text) in enumerate(texts.items()):
        dying = await scripted.another(2 + number % 4)
        streams = [kind(question) for kind in ALL]
        running = [asyncio.create_task(stream.run(dying, survivor)) for stream in streams]
        for stream in streams:
            async with asyncio.timeout(60):
                await stream.shows.wait()
        dying.service.kill()
        for stream in streams:
            stream.lost()
        ended = await asyncio.gather(*running, return_exceptions=True)
        for stream, error in zip(streams, ended, strict=True):
            if error is not None or stream.text != text:
                broken[stream.name].append(f"round {number}: {error!r}, {len(stream.text)} of {len(text)} characters")
            again_s[stream.name].append(math.inf if stream.again_s is None else stream.again_s)
    computed = await scripted.worker.metric("infer_total") - before
    twice = computed - _ROUNDS * len(ALL)
    for kind in ALL:
        times = sorted(again_s[kind.name])
        p99, median = times[min(len(times) - 1, math.ceil(0.99 * len(times)) - 1)], times[len(times) // 2]
        rows.found(
            f"gateway killed in mid-stream, {kind.name}",
            figure=f"{_ROUNDS} kills: {len(broken[kind.name])} broken {broken[kind.name][:1]}; new text after "
            f"{median:.2f} s (median), {p99:.2f} s (p99)",
            target=f"0 tokens lost or twice; p99 at most {_MOST_S:g} s",
            holds=not broken[kind.name] and p99 <= _MOST_S,
        )
    rows.found(
        "answers computed twice under these kills", figure=f"{twice:g} of {computed:g}", target="0", holds=twice == 0
    )


async def _texts(tried: Tried, count: int) -> dict[str, str]:
    """Return question → text without a fault: the scripted engine's words depend only on the prompt."""
    texts = dict[str, str]()
    while len(texts) < count:
        stream = ALL[0](f"Tell me all, {secrets.token_hex(4)}")  # the same words again would find the answer again
        await stream.run(tried.gateways[0], tried.gateways[1])
        if len(stream.text) >= _CHARS:
            texts[stream.question] = stream.text
    return texts


@pytest.mark.parametrize("kind", [kind for kind in ALL if not kind.name.startswith("OpenAI chat")])
async def test_stop_works_after_resume(scripted: Tried, rows: Rows, kind: type[DoorStream]) -> None:
    dying = await scripted.another(2)
    stream = kind(next(iter(await _texts(scripted, 1))))
    running = asyncio.create_task(stream.run(dying, scripted.gateways[1]))
    await stream.shows.wait()
    dying.service.kill()
    stream.lost()
    await eventually(lambda: stream.again_s is not None)
    before = await scripted.worker.metric("infer_total", status="cancelled")
    await stream.stop(scripted.gateways[1])
    await asyncio.wait_for(running, 20)

    async def cancelled() -> float:
        return await scripted.worker.metric("infer_total", status="cancelled") - before

    rows.found(
        f"stop after resume, {kind.name}",
        figure=f"{await eventually(cancelled):g} cancelled in the worker",
        target="1",
        holds=await cancelled() == 1,
    )
