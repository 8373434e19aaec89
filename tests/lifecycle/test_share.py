"""How near the share that a rule's hash gives comes to the share that was asked for."""

import math

import pytest

from shared.versions.state import Rule
from shared.wire.session_key import SessionKey
from tests.support.rows import Rows

_NAMES = 100_000
_STEPS = (0.01, 0.1, 0.5)
_MOST_POINTS = 0.2

HASH = "share: hash on 100,000 names"


@pytest.mark.rows(HASH)
def test_the_hash_gives_the_share(rows: Rows) -> None:
    """One rollout's steps, canary and control. Chance alone puts a fair hash at 50 % beyond the target in one of five
    rollouts: its standard deviation is printed beside what is found."""
    names = [SessionKey("demo", f"visitor-{number}") for number in range(_NAMES)]
    off: list[float] = []
    said = []
    for share in _STEPS:
        rule = Rule(salt="the first rollout", share=share, control=True)
        lanes = [rule.lane(name, ()) for name in names]
        found = [lanes.count(lane) / _NAMES * 100 for lane in ("canary", "control")]
        off += [abs(points - share * 100) for points in found]
        by_chance = math.sqrt(share * (1 - share) / _NAMES) * 100
        said.append(f"{share:.0%}: {found[0]:.2f} and {found[1]:.2f} % (± {by_chance:.2f} by chance)")
    rows.found(HASH, figure=f"canary and control at {'; '.join(said)}", holds=max(off) <= _MOST_POINTS)
