"""`make world SEEDS=60 SEED=1`, or `python -m tests.world 60 --seed 1`: have so many seeds happen.

The last line has seeds a second of CPU, and a hash of all that happened. A seed that fails shrinks to the fewest
decisions that fail so, and tells its story. Status 1: one failed.
"""

import argparse
import hashlib
import os
import sys
from typing import TYPE_CHECKING, Final

from tests.planted_bugs import TABLE, named, read_bugs
from tests.world.plan import KINDS, Plan, plan_of
from tests.world.shrinking import shrink

if TYPE_CHECKING:
    from tests.world.runs import Runs
    from tests.world.world import Outcome

_SHRINKING_RUNS: Final = 150


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="?", default=60)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--bug", help="plant the bug of tests/planted_bugs.toml that has this in its name")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of the faults, comma-separated")
    parser.add_argument("--faults", type=int, help="in each world; else as drawn")
    parser.add_argument("--keep-going", action="store_true", help="after a seed that fails, and shrink none")
    parser.add_argument("--no-shrinking", action="store_true", help="of the seed that fails")
    parser.add_argument("--verbose", action="store_true", help="a line a seed")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # aiokafka keeps topics and partitions in sets of strings
        again = [sys.executable, "-m", "tests.world", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    if given.bug is not None:
        try:
            bug = named(given.bug, read_bugs(TABLE.read_bytes()))
            bug.plant_here()
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"planted: {bug.name}", flush=True)
    from tests.world.runs import Runs  # imports the product, the bug with it

    runs, trace, failed = Runs(), hashlib.blake2b(digest_size=8), 0
    for seed in range(given.seed, given.seed + given.seeds):
        outcome = runs.run(plan_of(seed, kinds=tuple(given.kinds.split(",")), faults=given.faults))
        trace.update(outcome.trace.encode())
        if given.verbose:
            print(seed, outcome.trace[:8], outcome.broken, outcome.facts)
        if outcome.broken:
            failed += 1
            print(f"seed {seed} breaks {outcome.broken}")
            if not given.keep_going:
                print(outcome.story if given.no_shrinking else _explain(runs, outcome))
                break
    done = seed - given.seed + 1
    if given.bug is not None and not failed:
        print(f"no seed of these shows it: {bug.name}")
    print(f"{done} seeds, {failed} failed, {done / runs.cpu_s:.2f} seeds a second, trace {trace.hexdigest()}")
    return min(failed, 1)


def _explain(runs: "Runs", outcome: "Outcome") -> str:
    """Return what it takes to fail so, and the story of that."""
    name = next(iter(outcome.broken))

    def fails(plan: Plan) -> bool:
        return name in runs.run(plan).broken

    small = shrink(outcome.plan, fails, _SHRINKING_RUNS)
    return f"{name}: shrunk from {outcome.plan.size} decisions to {small.size}\n{runs.run(small).story}"


if __name__ == "__main__":
    sys.exit(main())
