"""Whole rollouts by the controller: of a version that is silent to 30 % of the questions, and with its own deaths."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.versions.registry import Registry
from shared.versions.state import Move
from tests.proofs.lifecycle.conftest import MakeSetting
from tests.proofs.lifecycle.setting import Setting
from tests.proofs.lifecycle.talk import Answered, Talk
from tests.support.rows import Rows
from tests.support.system import eventually

ROUTED = "rollback: from the alarm to the last request routed to the canary"
TRIALS = "rollback: whole trials with 30 % bad answers"
KILLED = "faults: the controller is killed at every step"
_BAD = 0.3
_SHARE = 30
_RATE = 8.0  # 2.4 a second for the canary
_LIMIT_S = 90.0
_MOST_ROUTED_S = 1.0
_MOST_S = 30.0


@pytest.mark.rows(ROUTED, TRIALS)
async def test_a_bad_version_is_rolled_back(
    make_setting: MakeSetting, models: Callable[..., Path], rows: Rows, whole: bool
) -> None:
    """Each conversation asks once: of several answers of one the evidence counts the first most."""
    setting = await make_setting()
    one, bad = await setting.add(models("one"), "one"), await setting.add(models("bad", _BAD), "bad")
    await setting.done("versions", "use", one)
    await setting.start("champion", "canary", "control")
    setting.controller()
    trials = [await _trial(setting, bad, seed) for seed in range(20 if whole else 3)]
    routed_s = sorted(routed for _, routed, _ in trials)
    rows.found(
        ROUTED,
        figure=f"{routed_s[-1]:.2f} s at most, of {len(trials)} rollbacks, by both gateways' answers",
        holds=routed_s[-1] <= _MOST_ROUTED_S,
    )
    took_s = sorted(took for took, _, _ in trials)
    rows.found(
        TRIALS,
        figure=f"{sum(took <= _MOST_S for took in took_s)} of {len(trials)} within {_MOST_S:g} s; median "
        f"{took_s[len(took_s) // 2]:.1f}, most {took_s[-1]:.1f} s; after {[count for _, _, count in trials]} answers",
        holds=took_s[-1] <= _MOST_S,
    )


async def _trial(setting: Setting, bad: str, seed: int) -> tuple[float, float, int]:
    """Return the seconds from the first canary answer's question to the last one routed to it, of these those after the
    alarm, and how many the canary answered in that time."""
    clients = round(_RATE * _LIMIT_S)
    await setting.done("versions", "load", bad, "--lane", "canary")
    async with Talk(setting=setting, rate=_RATE, seconds=_LIMIT_S, clients=clients, seed=seed) as talk:
        await asyncio.sleep(2.0)
        await setting.done("rollout", "start", bad, "--steps", str(_SHARE), "--min-answers", "100000")
        await eventually(lambda: _back(setting), limit_s=_LIMIT_S)
        await asyncio.sleep(3.0)
        talk.enough()
    judged = await talk.judged()
    assert not judged.broken, judged.broken
    alarm = await _back(setting)
    assert alarm is not None
    canary = [answer.asked_unix_ms for answer in _canaries(judged.answers, bad)]
    until = [asked for asked in canary if asked <= alarm.unix_ms]
    last = max(canary[-1], alarm.unix_ms)
    return (last - canary[0]) / 1_000, (last - alarm.unix_ms) / 1_000, len(until)


@pytest.mark.rows(KILLED)
async def test_the_controller_dies_at_every_step(
    make_setting: MakeSetting, models: Callable[..., Path], rows: Rows
) -> None:
    """A good version is rolled out. After each move its controller is killed and another one started."""
    setting = await make_setting()
    one, two = await setting.add(models("one"), "one"), await setting.add(models("two"), "two")
    await setting.done("versions", "use", one)
    await setting.start("champion", "canary", "control")
    await setting.done("versions", "load", two, "--lane", "canary")
    controller, kills = setting.controller(), 0
    clients = round(_RATE * _LIMIT_S)
    async with Talk(setting=setting, rate=_RATE, seconds=_LIMIT_S, clients=clients) as talk:
        rule = ("--steps", "10,30,50", "--classes", "short", "--min-answers", "5", "--min-s", "3", "--warmup", "0")
        await setting.done("rollout", "start", two, *rule)
        seen = (await setting.registry()).state.epoch
        async with asyncio.timeout(2 * _LIMIT_S):  # after the last answer it would hold for a day
            while not _ended(registry := await setting.registry()):
                if registry.state.epoch > seen:
                    seen, kills = registry.state.epoch, kills + 1
                    controller.kill()
                    controller = setting.controller()
                await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)
        talk.enough()
    judged = await talk.judged()
    states = [move.state for move in registry.moves if move.author.startswith("rollout")]
    shares = [state.rule.shares.get("short", state.rule.share) for state in states if state.rule is not None]
    rows.found(
        KILLED,
        figure=f"{kills} kills, shares {list(dict.fromkeys(shares))}, champion {registry.state.aliases['champion']}; "
        f"{len(judged.answers)} answers, {judged.broken[:2]} broken, {len(judged.instead)} not by a model",
        holds=registry.state.aliases["champion"] == two and kills >= len(set(shares)) and not judged.broken,
    )


async def _back(setting: Setting) -> Move | None:
    """Return the move that took the last rollout's rule away."""
    moves = (await setting.registry()).moves
    return moves[-1] if moves[-1].state.rule is None and moves[-2].state.rule is not None else None


def _canaries(answers: list[Answered], revision: str) -> list[Answered]:
    return [answer for answer in answers if answer.lane == "canary" and answer.response.revision == revision]


def _ended(registry: Registry) -> bool:
    return bool(registry.notes) and registry.notes[-1].kind == "ended"
