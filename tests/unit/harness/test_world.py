"""The deterministic world (docs/testing.md): what its seeds show, how they replay, and how a failure shrinks."""

import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import pytest

from shared.records.commits import Commits
from shared.records.deliveries import Partition
from tests.world.plan import ABUSES, ACTS, KINDS, MOVES, SESSIONS, Act, Ask, Fault, Plan, plan_of
from tests.world.shrinking import shrink
from tests.world.telling import ACT_WORDS, struck

ROOT = Path(__file__).parents[3]
SEEDS = 60
LONG_SEEDS = 150
LIMIT_S = 1_200.0


def world(*arguments: str, hash_seed: str = "0") -> str:
    """Run the program; return its last line if no seed failed."""
    command = [sys.executable, "-m", "tests.world", *arguments]
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.timeout(LIMIT_S)
def test_every_promise_is_kept_in_the_first_seeds() -> None:
    assert world(str(SEEDS)).startswith(f"{SEEDS} seeds, 0 failed")


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_every_promise_is_kept_in_more_seeds() -> None:
    assert world(str(LONG_SEEDS), "--seed", "1001").startswith(f"{LONG_SEEDS} seeds, 0 failed")


def test_a_worker_applies_an_erasure_that_was_made_while_it_was_away(tmp_path: Path) -> None:
    """The question is still in Kafka. Its KV is stored nowhere, and Redis, which knows the erasure, refuses it."""
    asked = Ask(1.6, 2, tokens=40, hard_ms=10_000)
    faults = (Fault(1.5, "kill-worker"), Fault(7.9, "redis-readonly"))
    plan = Plan(3177, asks=(asked,), acts=(Act(2.5, 2, "erase-elsewhere"),), faults=faults)
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    assert world("--plan", str(file)).startswith("1 seeds, 0 failed")


def test_a_seed_replays_to_the_last_event() -> None:
    """The interpreter's own hash seed does not matter."""
    traces = {world("3", "--seed", "7", hash_seed=each).rpartition(" ")[2] for each in ("0", "5")}
    assert len(traces) == 1


def test_another_seed_gives_another_world() -> None:
    assert plan_of(1) == plan_of(1)
    assert plan_of(1) != plan_of(2)


def test_a_second_tab_asks_while_the_first_may_wait_for_an_answer() -> None:
    """So a prompt depends on the answers that were open when its question was asked."""
    asks = [ask for seed in range(1, 41) for ask in plan_of(seed).asks if ask.session < SESSIONS]
    assert {ask.customer for ask in asks} == {f"s{number}{tab}" for number in range(SESSIONS) for tab in ("", "~1")}
    assert 0.2 < sum(ask.tab for ask in asks) / len(asks) < 0.35


def test_every_decision_has_a_description() -> None:
    for kind in (*KINDS, *MOVES):
        assert "{" not in struck(Fault(0.0, kind), Plan(1))
        assert not struck(Fault(0.0, kind), Plan(1)).startswith(f"FAULT: {kind} 0")
    assert {*ACTS, *ABUSES} == set(ACT_WORDS)


def test_a_failing_world_shrinks_to_the_events_it_needs() -> None:
    plan = plan_of(3, faults=5)
    guilty, witness = plan.faults[3], plan.asks[11]

    def fails(tried: Plan) -> bool:
        return guilty in tried.faults and witness in tried.asks

    small = shrink(plan, fails, most_runs=1_000)
    assert (small.asks, small.acts, small.faults, small.records) == ((witness,), (), (guilty,), ())


def test_a_shrunk_world_has_the_simplest_remaining_values() -> None:
    plan = plan_of(3, faults=5)

    def fails(tried: Plan) -> bool:
        return any(ask.hard_ms == plan.asks[11].hard_ms != 5_000 for ask in tried.asks)

    small = shrink(plan, fails, most_runs=1_000)
    at_s, hard_ms = small.asks[0].at_s, plan.asks[11].hard_ms
    assert small == Plan(plan.seed, asks=(Ask(round(at_s, 1), 0, hard_ms=hard_ms),))


async def _begin_without_end(self: Commits, partition: Partition, offset: int) -> int | None:
    """`await_delivery` before the fix: a caller waiting for a record that has ended keeps waiting and requesting a
    round.
    """
    tenure = self._offsets.tenure(partition)
    while self._offsets.tenure(partition) is tenure:
        if not self._deliveries.knows(partition):
            self._wanted.set()
        elif self._deliveries.begin(partition, offset):
            if self._deliveries.is_noted(partition, offset):
                return self._noticed(partition, offset)
            self._wanted.set()
        await self._turned.wait()
    return None


async def _commit_without_rest(self: Commits) -> bool:
    """`Commits.commit` before the fix: a round without anything to commit counts as done, so no pause follows."""
    learnt = await self._learn()
    notes = self._notes(() if self._reader.partitions is None else None)
    ready = self._offsets.committable() | {
        partition: position
        for partition, position in self._offsets.positions.items()
        if partition in notes and notes[partition] != self._deliveries.acknowledged(partition)
    }
    positions = {each: position for each, position in ready.items() if each in notes}
    return await self._committed(positions, notes) and learnt


def _frozen_worlds() -> Iterator[Plan]:
    """Return worlds whose only worker is frozen for longer than its group session while deliveries are due."""
    chance = random.Random(5)
    asked = ((1.32, 0, 11), (1.39, 1, 10), (1.07, 2, 27), (1.09, 3, 25), (1.06, 4, 25), (1.21, 5, 15))
    asks = tuple(Ask(*each, soft_ms=25_000, hard_ms=25_000) for each in asked)
    for seed in range(1, 100):
        frozen = Fault(chance.uniform(1.8, 4.0), "freeze-worker", 0, chance.uniform(4.5, 8.0))
        yield Plan(seed, asks=asks, faults=(Fault(0.1, "kill-worker", 1, 20.0), frozen))


def _first_spin(*, spins: bool) -> int | None:
    """Return the first of 40 worlds in which a process loops for ever, or None if the defect is fixed."""
    from tests.world.runs import Runs

    if spins:
        Commits.await_delivery = _begin_without_end  # type: ignore[method-assign]
        Commits.commit = _commit_without_rest  # type: ignore[method-assign]
    runs = Runs()
    for plan in _frozen_worlds():
        if not spins and plan.seed > 40:
            break
        broken = runs.run(plan).broken
        if "SPIN" in broken or (broken and not spins):
            return plan.seed
    return None


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("spins", [True, False])
def test_the_commit_livelock_of_a_frozen_worker_is_detected(spins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen worker's commit loop never ended: the first defect that a seed of this world found."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(_first_spin, spins=spins).result()
    assert (found is not None) is spins
