"""One deterministic world (docs/testing.md): what its seeds show, that they replay, and how a failure shrinks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world.plan import ABUSES, ACTS, KINDS, Ask, Fault, Plan, plan_of
from tests.world.shrinking import shrink
from tests.world.telling import ACT_WORDS, struck

ROOT = Path(__file__).parents[3]
SEEDS = 60
LONG_SEEDS = 150
LIMIT_S = 1_200.0


def world(*arguments: str, hash_seed: str = "0") -> str:
    """Run the program; return its last line where no seed failed."""
    command = [sys.executable, "-m", "tests.world", *arguments]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.timeout(LIMIT_S)
def test_every_promise_is_kept_whatever_happens() -> None:
    assert world(str(SEEDS)).startswith(f"{SEEDS} seeds, 0 failed")


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_every_promise_is_kept_in_more_worlds() -> None:
    assert world(str(LONG_SEEDS), "--seed", "1001").startswith(f"{LONG_SEEDS} seeds, 0 failed")


def test_a_seed_replays_to_the_last_event() -> None:
    """Whatever the interpreter's own hash seed is."""
    traces = {world("3", "--seed", "7", hash_seed=each).rpartition(" ")[2] for each in ("0", "5")}
    assert len(traces) == 1


def test_another_seed_is_another_world() -> None:
    assert plan_of(1) == plan_of(1)
    assert plan_of(1) != plan_of(2)


def test_every_decision_has_its_words() -> None:
    for kind in KINDS:
        assert "{" not in struck(Fault(0.0, kind), Plan(1))
        assert not struck(Fault(0.0, kind), Plan(1)).startswith(f"FAULT: {kind} 0")
    assert {*ACTS, *ABUSES} == set(ACT_WORDS)


def test_what_fails_shrinks_to_what_it_takes() -> None:
    plan = plan_of(3, faults=5)
    guilty, witness = plan.faults[3], plan.asks[11]

    def fails(tried: Plan) -> bool:
        return guilty in tried.faults and witness in tried.asks

    small = shrink(plan, fails, most_runs=1_000)
    assert (small.asks, small.acts, small.faults, small.records) == ((witness,), (), (guilty,), ())


def test_what_is_left_is_as_plain_as_it_may_be() -> None:
    plan = plan_of(3, faults=5)

    def fails(tried: Plan) -> bool:
        return any(ask.hard_ms == plan.asks[11].hard_ms != 5_000 for ask in tried.asks)

    small = shrink(plan, fails, most_runs=1_000)
    at_s, hard_ms = small.asks[0].at_s, plan.asks[11].hard_ms
    assert small == Plan(plan.seed, asks=(Ask(round(at_s, 1), 0, hard_ms=hard_ms),))
