"""The cost of a question in Python calls, by process and step: `python -m tests.world.cost`.

Every conversation asks once, and in a second run twice: the difference is a question's cost. No load of the machine
changes it, and what an idle process does is not in it. Calls of metrics and log lines are not counted, since the world
does without them.
"""

import argparse
import json
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.bench.steps import PYTHON, step_of
from tests.world.plan import Ask, Plan

KEPT: Final = Path(__file__).with_suffix(".json")
CONVERSATIONS: Final = 40
_APART_S: Final = 0.5
_TOKENS: Final = 8
_LEAST: Final = 5.0
"""Calls; a step with fewer is not listed."""

Costs = dict[str, dict[str, float]]


def plan(times: int) -> Plan:
    """Each conversation asks `times`, each question by itself; both plans last as long."""
    asks = [_ask(turn, number) for turn in range(times) for number in range(CONVERSATIONS)]
    return Plan(seed=1, asks=(*asks, _ask(2, 0)))


def _ask(turn: int, session: int) -> Ask:
    at_s = (turn * CONVERSATIONS + session) * _APART_S
    return Ask(at_s=at_s, session=session, tokens=_TOKENS, soft_ms=5_000)


def measure() -> Costs:
    """Return the calls of a question by process and step."""
    from tests.world.world import World

    world = World()
    world.boot()
    once, twice = (_counted(partial(world.run, plan(times))) for times in (1, 2))
    costs: Costs = {}
    for (process, step), num in twice.items():
        calls = (num - once[process, step]) / CONVERSATIONS
        if calls >= _LEAST:
            costs.setdefault(process, {})[step] = round(calls, 1)
    return {process: dict(sorted(steps.items())) for process, steps in sorted(costs.items())}


def _counted(run: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """Run in a fork, as each plan is; return its calls by process and step."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        counts = _Calls()
        sys.setprofile(counts)
        try:
            run()
        finally:
            sys.setprofile(None)
            with os.fdopen(writing, "wb") as file:
                pickle.dump(counts.by_step, file)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        counted: Counter[tuple[str, str]] = pickle.load(file)
    os.waitpid(child, 0)
    return counted


class _Calls:
    """Counts the calls of gateways and workers."""

    def __init__(self) -> None:
        from tests.world.virtual.node import NODE

        self.by_step: Counter[tuple[str, str]] = Counter()
        self._node = NODE

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (node := self._node.get(None)) is None:
            return
        process = node.name.partition("-")[0]
        if process in {"gateway", "worker"} and (step := step_of(_files(frame))):
            self.by_step[process, step] += 1


def _files(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def table(costs: Mapping[str, Mapping[str, float]]) -> str:
    """Return a line for each step, the dearest first."""
    lines = []
    for process, steps in costs.items():
        lines.append(f"{process}: {sum(steps.values()):.0f} Python calls a question")
        lines += [f"  {calls:7.1f}  {step}" for step, calls in sorted(steps.items(), key=lambda item: -item[1])]
    return "\n".join(lines)


def changed(kept: Mapping[str, Mapping[str, float]], now: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line for each step that costs a tenth more or less than it is kept to. A standard library's own calls
    are not compared, since each Python has others."""
    lines = []
    for process in kept:
        for step in sorted(({*kept[process], *now[process]}) - {PYTHON}):
            before, after = kept[process].get(step, 0.0), now[process].get(step, 0.0)
            if abs(after - before) > max(_LEAST, before / 10):
                lines.append(f"{process}, {step}: {after:.0f} Python calls a question, {before:.0f} are kept")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world.cost", description=__doc__)
    parser.add_argument(
        "--keep",
        nargs="?",
        type=Path,
        const=KEPT,
        help=f"write them to a file: {KEPT.name}, which a test compares with",
    )
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # as in tests.world
        again = [sys.executable, "-m", "tests.world.cost", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    costs = measure()
    if given.keep is not None:
        given.keep.write_text(json.dumps(costs, indent=1) + "\n")
    print(table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
