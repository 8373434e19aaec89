"""When an open loop sends: fixed before the first request, so that a slow system cannot slow its own load."""

import random
from typing import Literal

Arrivals = Literal["poisson", "even"]


def schedule(kind: Arrivals, *, rate: float, count: int, seed: int = 0) -> list[float]:
    """Seconds from the start at which each of `count` requests is due, `rate` a second; ascending.

    `poisson`: independent exponential gaps, as many customers make them; `even`: one gap for all.
    """
    if kind == "even":
        return [index / rate for index in range(count)]
    draw = random.Random(seed)  # noqa: S311 - a load, not a secret
    times: list[float] = []
    now = 0.0
    for _ in range(count):
        now += draw.expovariate(rate)
        times.append(now)
    return times
