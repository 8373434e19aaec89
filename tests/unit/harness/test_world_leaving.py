"""Workers that get SIGTERM at a bad moment, with answers in flight, in the deterministic world (docs/testing.md)."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import pytest

from tests.world.plan import CANARY, ELASTIC, SESSIONS, Ask, Fault, Plan

NUM_SEEDS: Final = 1
LIMIT_S: Final = 1_200.0
# Two tabs of each conversation ask for four seconds; a fourth of the answers take longer than a worker's start.
ASKS: Final = tuple(
    Ask(0.5 + number / 6, number % SESSIONS, tokens=40 if number % 4 == 0 else 8, hard_ms=10_000, tab=number // 6 % 2)
    for number in range(24)
)
THIRD: Final = Fault(0.1, "enter-worker", ELASTIC[0])


def sigterm(at_s: float, worker: int = 0) -> Fault:
    return Fault(at_s, "stop-worker", worker)


CASES: Final[dict[str, tuple[Fault, ...]]] = {
    "twice": (sigterm(2.5), sigterm(2.6)),
    "again, as soon as it has started": (sigterm(2.5), sigterm(3.2), sigterm(4.4)),
    "while it starts": (THIRD, sigterm(0.3, ELASTIC[0]), sigterm(1.0, ELASTIC[0])),
    "both of two at once": (sigterm(2.5), sigterm(2.5, 1)),
    "two of three at once": (THIRD, sigterm(4.0), sigterm(4.0, 1)),
    "while it drains": (Fault(2.4, "leave-worker", 0), sigterm(2.6)),
    "Redis goes with it": (sigterm(2.5), Fault(2.5, "redis-away", 0, 3.0)),
    "Redis hangs while it drains": (sigterm(2.5), Fault(2.6, "redis-hang", 0, 3.0)),
    "a broker goes with it": (sigterm(2.5), Fault(2.5, "broker-down", 0, 1.0)),
    "its gateway goes with it": (sigterm(2.5), Fault(2.5, "stop-gateway", 0)),
    "its neighbour is frozen": (Fault(2.3, "freeze-worker", 1, 2.0), sigterm(2.5)),
    "its neighbour is killed": (sigterm(2.5), Fault(2.7, "kill-worker", 1, 1.0)),
    "a canary, while it is rolled back": (sigterm(2.5, CANARY), Fault(2.6, "rollback", 0)),
}


def _run_all() -> dict[str, dict[str, int]]:
    from tests.world.runs import Runs  # imports the product

    runs, broken = Runs(), dict[str, dict[str, int]]()
    for name, faults in CASES.items():
        for seed in range(NUM_SEEDS):
            in_order = tuple(sorted(faults, key=lambda each: each.at_s))
            plan = Plan(seed, asks=ASKS, faults=in_order, canary="canary" in name)
            broken.setdefault(name, {}).update(runs.run(plan).broken)
    return broken


@pytest.fixture(scope="module")
def broken() -> dict[str, dict[str, int]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONHASHSEED", "0")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_run_all).result()


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", CASES)
def test_sigterm_at_a_bad_moment_breaks_no_promise(name: str, broken: dict[str, dict[str, int]]) -> None:
    assert broken[name] == {}
