"""Run the whole system in virtual time, once for each seed: `make world SEEDS=60 SEED=1`.

The first plan that fails is reduced to the fewest decisions that still break the promise. The reduced plan is written
to world.json and a page prints its events. The last line has the seeds, the number of failures, the seeds per second of
CPU, and a hash of all events: the same code gives the same hash. The exit status is 0 if every promise was kept, 1 if
one was broken, 2 for a wrong argument.
"""

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tests.planted.bugs import TABLE, named, read_bugs
from tests.world.plan import Plan, plan_of
from tests.world.shrinking import shrink

if TYPE_CHECKING:
    from tests.world.runs import Runs
    from tests.world.world import Outcome

_SHRINKING_RUNS: Final = 200
_KEPT: Final = Path("world.json")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=60, help="how many seeds to run (60)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--bug", help="plant the bug of tests/planted/bugs.toml whose name has this part")
    parser.add_argument("--plan", type=Path, help="run this file instead, which an earlier failure has written")
    parser.add_argument("--keep-going", action="store_true", help="run the other seeds too after one has failed")
    parser.add_argument("--no-shrinking", action="store_true", help="report the failing seed as it was drawn")
    parser.add_argument("--verbose", action="store_true", help="print a line for each seed")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # aiokafka keeps topics and partitions in sets of strings
        again = [sys.executable, "-m", "tests.world", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    try:
        if given.bug is not None:
            bug = named(given.bug, read_bugs(TABLE.read_bytes()))
            bug.plant_here()
            print(f"planted: {bug.name}", flush=True)
        seeds = range(given.seed, given.seed + given.seeds)
        plans = [msgspec.json.decode(given.plan.read_bytes(), type=Plan)] if given.plan else map(plan_of, seeds)
    except (ValueError, OSError, msgspec.MsgspecError) as error:
        print(error, file=sys.stderr)
        return 2
    from tests.world.runs import Runs  # imports the product, the bug with it

    runs, trace, done = Runs(), hashlib.blake2b(digest_size=8), 0
    failed: list[Outcome] = []
    for plan in plans:
        outcome, done = runs.run(plan), done + 1
        trace.update(outcome.trace.encode())
        if given.verbose:
            print(plan.seed, outcome.trace[:8], outcome.broken, outcome.facts, flush=True)
        if outcome.broken:
            print(f"seed {plan.seed} breaks {', '.join(outcome.broken)}", flush=True)
            failed.append(outcome)
            if not given.keep_going:
                break
    last = f"{done} seeds, {len(failed)} failed, {done / runs.cpu_s:.2f} seeds a second, trace {trace.hexdigest()}"
    if failed:
        _explain(given, runs, *failed)
    elif given.bug is not None:
        print(f"none of them shows it: {bug.name}")
    print(last)
    return 1 if failed else 0


def _explain(given: argparse.Namespace, runs: "Runs", first: "Outcome", *others: "Outcome") -> None:
    """Print a page about the first failure, after reducing its plan to the smallest that fails the same way, and save
    the reduced plan."""
    name = next(iter(first.broken))
    if not (given.plan or given.no_shrinking):
        small = shrink(first.plan, lambda plan: name in runs.run(plan).broken, _SHRINKING_RUNS)
        _KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(small)))
        again = f"make world PLAN={_KEPT}" + (f' BUG="{given.bug}"' if given.bug else "")
        print(f"\nShrunk from {first.plan.size} decisions to {small.size}. To see it again: {again}")
        first = runs.run(small)
    print(f"\n{first.story}\n")
    if others:
        print(f"{len(others)} others failed: seeds {', '.join(str(other.plan.seed) for other in others)}")


if __name__ == "__main__":
    sys.exit(main())
