"""The send times of an open loop. They are fixed before the first request, so that a slow system cannot slow its own
load down."""

import random
from typing import Literal

Arrivals = Literal["poisson", "even"]


def schedule(kind: Arrivals, *, rate: float, count: int, seed: int = 0) -> list[float]:
    """Return the seconds from the start at which each of `count` requests is due, in ascending order.

    Args:
        kind: `poisson` for independent exponential gaps, as with many customers; `even` for equal gaps
        rate: requests per second
        count: number of requests
        seed: seed of the gaps
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
