"""How near a rule's share comes to what was asked for, and who changes sides."""

import asyncio
import math
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from shared.versions.state import Move, Rule
from shared.wire.session_key import SessionKey
from tests.proofs.lifecycle.conftest import MakeSetting
from tests.proofs.lifecycle.talk import Answered, Talk, by_session, diverted
from tests.support.rows import Rows

_NAMES = 10_000
_SALTS = 40
_STEPS = (0.01, 0.1, 0.5)
_MOST_OFF = 4.5
_MOST_SPREAD = 1.2

_SHARE, _PROMOTED = 0.3, 0.5
_PHASE_S = 25.0
_RATE = 8.0
_MOST_ERRORS = 3.0

HASH = "share: hash on 40 salts"
LIVE = "share: live"
SIDES = "share: conversations that change sides"


@pytest.mark.rows(HASH)
def test_the_hash_gives_the_share(rows: Rows) -> None:
    """Steps of 40 rollouts, canary and control, each with the salt that it draws. Of their 240 shares the mean distance
    is that of chance, and none is beyond 4.5 standard deviations, where chance alone puts one of 600 such tests."""
    names = [SessionKey("demo", f"visitor-{number}") for number in range(_NAMES)]
    off: list[float] = []
    for salt in range(_SALTS):
        for share in _STEPS:
            rule, error = Rule(salt=f"{salt:016x}", share=share, control=True), math.sqrt(share * (1 - share) * _NAMES)
            lanes = [rule.lane(name) for name in names]
            off += [(lanes.count(lane) - share * _NAMES) / error for lane in ("canary", "control")]
    most, spread = max(map(abs, off)), math.sqrt(sum(each * each for each in off) / len(off))
    rows.found(
        HASH,
        figure=f"{_SALTS} salts, shares {', '.join(f'{share:.0%}' for share in _STEPS)}: at most {most:.2f} standard "
        f"deviations of chance from the share, {spread:.2f} in the mean square",
        holds=most <= _MOST_OFF and spread <= _MOST_SPREAD,
    )


@pytest.mark.rows(LIVE, SIDES)
async def test_nobody_changes_sides(make_setting: MakeSetting, models: Callable[..., Path], rows: Rows) -> None:
    """Customers lose their sockets all the time and come back to either gateway. A promotion and a rollback by hand
    come between their questions."""
    setting = await make_setting()
    first, second = [await setting.add(models(name), name) for name in ("one", "two")]
    rule = Rule(salt="by hand", share=_SHARE)
    await setting.move(aliases={"champion": first, "canary": second}, rule=rule)
    await setting.start("champion", "champion", "canary")
    await asyncio.sleep(2.0)  # every gateway knows the canary's worker after that
    clients = round(_RATE * _PHASE_S)
    async with Talk(setting=setting, rate=_RATE, seconds=3 * _PHASE_S, clients=clients) as talk:
        await _cutting(talk, clients)
        promoted = await setting.move(rule=Rule(salt="by hand", share=_PROMOTED))
        await _cutting(talk, clients)
        back = await setting.move(aliases={"champion": first, "previous": second}, rule=None)
    judged = await talk.judged()
    before = [answer for answer in judged.answers if answer.asked_unix_ms < promoted.unix_ms]
    canaries, people = len({a.session for a in before if a.lane == "canary"}), len({a.session for a in before})
    error = math.sqrt(_SHARE * (1 - _SHARE) / people)
    rows.found(
        LIVE,
        figure=f"{canaries / people:.3f} of {people} conversations, {_SHARE} asked (standard error {error:.3f})",
        holds=abs(canaries / people - _SHARE) <= _MOST_ERRORS * error,
    )
    # The champion answers what the canary's worker has no time for; the conversation stays on its side.
    aside = diverted(before, Rule(salt="by hand", share=_SHARE))
    on_side = [answer for answer in judged.answers if answer not in aside]
    changed = [pair for each in by_session(on_side).values() for pair in pairwise(each) if _changes(*pair)]
    wrong = [pair for pair in changed if not _may_change(*pair, promoted, back)]
    rows.found(
        SIDES,
        figure=f"{len(wrong)} of {clients} conversations; {len(changed)} changed by the promotion or the rollback; "
        f"{len(aside)} answers diverted; {judged.verdict.recovered} came back to a gateway; "
        f"{judged.broken[:1]} broken",
        holds=not wrong and bool(changed) and not judged.broken,
    )


async def _cutting(talk: Talk, clients: int) -> None:
    chance = random.Random(clients)
    for _ in range(round(_PHASE_S * 4)):
        talk.cut(chance.randrange(clients))
        await asyncio.sleep(0.25)


def _changes(sooner: Answered, later: Answered) -> bool:
    return sooner.lane != later.lane


def _may_change(sooner: Answered, later: Answered, promoted: Move, back: Move) -> bool:
    """Return whether a promotion or the rollback came between two questions, which allows this change."""
    cause = promoted if later.lane == "canary" else back
    return sooner.asked_unix_ms <= cause.unix_ms <= later.asked_unix_ms
