"""Runs of the world: it is booted once, and each seed runs in a fork of it."""

import os
import pickle
import sys
import traceback

from tests.world.plan import Plan
from tests.world.world import Outcome, World


class Runs:
    """A booted world to fork. `cpu_s` is what the forks have computed."""

    def __init__(self) -> None:
        self._world = World()
        self._world.boot()
        self.cpu_s = 0.0

    def run(self, plan: Plan) -> Outcome:
        """Run a plan in a fork."""
        reading, writing = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._serve(plan, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            data = file.read()
        _, status, spent = os.wait4(child, 0)
        self.cpu_s += spent.ru_utime + spent.ru_stime
        if not data:
            return Outcome(plan, {"DIED": 1}, f"the world's own process ended with status {status}", "")
        outcome: Outcome = pickle.loads(data)
        return outcome

    def _serve(self, plan: Plan, writing: int) -> None:
        """Run in the fork, write the outcome, and exit immediately."""
        try:
            outcome = self._world.run(plan)
        except BaseException:  # noqa: BLE001 - reported to the parent
            outcome = Outcome(plan, {"WORLD": 1}, traceback.format_exc(), "")
        with os.fdopen(writing, "wb") as file:
            pickle.dump(outcome, file)
        os._exit(0)
