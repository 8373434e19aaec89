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
from tests.proofs.lifecycle.talk import Answered, Talk, by_session
from tests.support.rows import Rows

_NAMES = 100_000
_STEPS = (0.01, 0.1, 0.5)
_MOST_POINTS = 0.2

_SHARE, _PROMOTED = 0.3, 0.5
_PHASE_S = 25.0
_RATE = 8.0
_MOST_ERRORS = 3.0

HASH = "share: hash on 100,000 names"
LIVE = "share: live"
SIDES = "share: conversations that change sides"


@pytest.mark.rows(HASH)
def test_the_hash_gives_the_share(rows: Rows) -> None:
    """One rollout's steps, canary and control. Chance alone puts a fair hash at 50 % beyond the target in one of five
    rollouts: its standard deviation is printed next to the result."""
    names = [SessionKey("demo", f"visitor-{number}") for number in range(_NAMES)]
    off: list[float] = []
    said = []
    for share in _STEPS:
        rule = Rule(salt="the first rollout", share=share, control=True)
        lanes = [rule.lane(name) for name in names]
        found = [lanes.count(lane) / _NAMES * 100 for lane in ("canary", "control")]
        off += [abs(points - share * 100) for points in found]
        by_chance = math.sqrt(share * (1 - share) / _NAMES) * 100
        said.append(f"{share:.0%}: {found[0]:.2f} and {found[1]:.2f} % (± {by_chance:.2f} by chance)")
    rows.found(HASH, figure=f"canary and control at {'; '.join(said)}", holds=max(off) <= _MOST_POINTS)


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
    changed = [pair for each in by_session(judged.answers).values() for pair in pairwise(each) if _changes(*pair)]
    wrong = [pair for pair in changed if not _may_change(*pair, promoted, back)]
    rows.found(
        SIDES,
        figure=f"{len(wrong)} of {clients} conversations; {len(changed)} changed by the promotion or the rollback; "
        f"{judged.verdict.recovered} came back to a gateway; {judged.broken[:1]} broken",
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
