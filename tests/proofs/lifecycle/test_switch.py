"""A champion is changed under load: nothing is dropped or mixed, and the old serves until the new one does."""

import asyncio
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from shared.versions.state import Move
from tests.proofs.lifecycle.conftest import MakeSetting
from tests.proofs.lifecycle.setting import Setting
from tests.proofs.lifecycle.talk import Answered, Talk, last_on_the_old_s, p99_ms
from tests.support.rows import Rows
from tests.support.system import Service, eventually

DROPPED = "switch: answers dropped, mixed or of foreign KV"
OWN = "switch: answers that are their revision's own tokens"
LAST = "switch: from the alias's move to the last request begun on the old"
LOADING = "switch: p99 of the first text while loading"
REHEARSAL = "switch: kill -9 of a loading worker's rehearsal"
KILLED = "switch: kill -9 of a worker during a switch"
_RATE = 15.0
_CLIENTS = 300  # each asks every 20 s, when its last answer has ended and is in its history
_MOST_LAST_S = 1.0
_MOST_RATIO = 1.2


async def _town(make_setting: MakeSetting, models: Callable[..., Path]) -> tuple[Setting, str, str]:
    """Two versions, of which the first is the champion, and workers: two champions, one canary."""
    setting = await make_setting()
    first, second = [await setting.add(models(name), name) for name in ("one", "two")]
    await setting.done("versions", "use", first)
    await setting.done("versions", "use", second, "--lane", "canary")
    await setting.start("champion", "champion", "canary")
    return setting, first, second


@pytest.mark.rows(DROPPED, OWN, LAST, LOADING)
async def test_the_champion_is_changed_under_load(
    make_setting: MakeSetting, models: Callable[..., Path], rows: Rows, whole: bool
) -> None:
    """Half of the time a version is loaded, half of it nothing is: windows in turn."""
    setting, first, second = await _town(make_setting, models)
    switches = 20 if whole else 8
    async with Talk(setting=setting, rate=_RATE, seconds=1_000.0, clients=_CLIENTS) as talk:
        await asyncio.sleep(5.0)
        for number in range(switches):
            began_s = time.monotonic()
            await setting.done("versions", "use", (second, first)[number % 2])
            await asyncio.sleep(max(5.0, time.monotonic() - began_s))
        talk.enough()
    judged = await talk.judged()
    moves = (await setting.registry()).moves
    changes = [move for old, move in pairwise(moves) if _champion(old) not in {None, _champion(move)}]
    assert len(changes) == switches
    rows.found(
        DROPPED,
        figure=f"{len(judged.answers)} answers, {switches} switches: {len(judged.broken)} kinds broken "
        f"{judged.broken[:2]}, {len(judged.instead)} not by a model {_sources(judged.instead)}, "
        f"{judged.num_short} without turns that Redis did not give in time",
        holds=not judged.broken and not judged.instead,
    )
    named = {revision: sum(a.response.revision == revision for a in judged.answers) for revision in (first, second)}
    rows.found(OWN, figure=f"{named} answers by revision: {judged.broken[:1]}", holds=not judged.broken)
    last_s = max(last_on_the_old_s(move, moves, judged.answers) for move in changes)
    rows.found(LAST, figure=f"{last_s:.2f} s at most, of {switches} moves", holds=last_s <= _MOST_LAST_S)
    loading, quiet = _by_loading(moves, judged.answers)
    ratio = p99_ms(loading) / p99_ms(quiet)
    rows.found(
        LOADING,
        figure=f"{ratio:.2f}: {p99_ms(loading):.0f} ms ({len(loading)} answers) to {p99_ms(quiet):.0f} ms "
        f"({len(quiet)}); medians {_median_ms(loading):.0f} and {_median_ms(quiet):.0f} ms",
        holds=ratio <= _MOST_RATIO,
    )


@pytest.mark.rows(REHEARSAL, KILLED)
async def test_kills_during_a_switch(make_setting: MakeSetting, models: Callable[..., Path], rows: Rows) -> None:
    setting, first, second = await _town(make_setting, models)
    async with Talk(setting=setting, rate=_RATE, seconds=1_000.0, clients=_CLIENTS) as talk:
        await asyncio.sleep(3.0)
        using = asyncio.create_task(setting.command("versions", "use", second, "--wait-s", "20"))
        killed = await eventually(lambda: _kill_child(setting.workers[0]), limit_s=60)
        said = await using
        champion = (await setting.registry()).state.aliases.get("champion")
        served = {answer.response.revision for answer in talk.answered() if answer.lane == "champion"}
        rows.found(
            REHEARSAL,
            figure=f"child {killed} killed; the command: status {said.status}, {said.text.splitlines()[-1:]}; "
            f"answered by {served}, champion {champion}",
            holds="SIGKILL" in said.text and champion == first and served == {first},
        )
        using = asyncio.create_task(setting.command("versions", "use", second))
        await asyncio.sleep(2.0)
        setting.workers[0].kill()
        setting.workers[0] = setting.worker("champion")
        said = await using
        await setting.workers[0].ready()
        await asyncio.sleep(5.0)
        talk.enough()
    judged = await talk.judged()
    late = [answer.response.revision for answer in judged.answers[-10:] if answer.lane == "champion"]
    rows.found(
        KILLED,
        figure=f"the command: status {said.status}; {len(judged.answers)} answers, {judged.broken[:2]} broken, "
        f"{len(judged.instead)} not by a model {_sources(judged.instead)}; the last by {set(late)}",
        holds=said.status == 0 and not judged.broken and set(late) == {second},
    )


def _champion(move: Move) -> str | None:
    return move.state.aliases.get("champion")


def _kill_child(worker: Service) -> int | None:
    """Kill the process in which a worker tries a version, or return None if it does not exist yet."""
    children = psutil.Process(worker.child.process.pid).children(recursive=True)
    for child in children:
        child.kill()
    return children[0].pid if children else None


def _by_loading(moves: list[Move], answers: list[Answered]) -> tuple[list[Answered], list[Answered]]:
    """Return the champion's answers that were asked while a version was loaded, and the others."""
    ends = [move.unix_ms for move in moves[1:]] + [float("inf")]
    spans = [(move.unix_ms, end) for move, end in zip(moves, ends, strict=True) if "champion" in move.state.loading]
    champions = [answer for answer in answers if answer.lane == "champion"]
    loading = [a for a in champions if any(start <= a.asked_unix_ms < end for start, end in spans)]
    return loading, [answer for answer in champions if answer not in loading]


def _median_ms(answers: list[Answered]) -> float:
    return statistics.median(a.response.timings.ttft_ms or 0.0 for a in answers)


def _sources(answers: list[Answered]) -> set[tuple[str, str]]:
    return {(answer.response.source, answer.response.reason) for answer in answers}
