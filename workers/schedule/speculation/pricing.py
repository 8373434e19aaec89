"""Choose how many proposed tokens a step verifies, by what the step would then cost. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from workers.engine import MAX_PROPOSED
from workers.schedule.policy import Costs
from workers.schedule.work import Work

_LEAST_GAIN: Final = 1.1
"""Tokens per millisecond rise at least by this factor, since predictions have errors."""
LONGEST_PROPOSAL: Final = 16


class Offer(NamedTuple):
    """A row's proposal of `length` tokens after `past`: each is accepted with probability `rate` if those before it
    are."""

    rate: float
    length: int
    past: int


def lengths_worth(offers: Sequence[Offer], rows: Work, costs: Costs) -> list[int]:
    """Return how many tokens of each offer to verify, so that the most tokens per millisecond are expected.

    All are 0 if the step without any is about as fast. A verified token is priced as a prompt's in the same call.
    """
    chances = [
        (offer.rate**place, row)
        for row, offer in enumerate(offers)
        for place in range(1, min(offer.length, LONGEST_PROPOSAL) + 1)
    ]
    chances.sort(key=lambda chance: -chance[0])
    best = [0] * len(offers)
    best_speed = _LEAST_GAIN * rows.rows / costs.ms(rows)
    counts, expected, work = [0] * len(offers), float(rows.rows), rows
    for chance, row in chances[:MAX_PROPOSED]:
        work = work.lengthened(counts[row], offers[row].past + 1)
        counts[row] += 1
        expected += chance
        if (speed := expected / costs.ms(work)) > best_speed:
            best, best_speed = counts.copy(), speed
    return best


def may_pay(rows: Work, costs: Costs) -> bool:
    """Return whether verifying could pay if every proposed token were accepted."""
    least_speed = _LEAST_GAIN * rows.rows / costs.ms(rows)
    most = min(rows.rows * LONGEST_PROPOSAL, MAX_PROPOSED)
    past = rows.context // rows.rows
    return any((rows.rows + n) / costs.ms(rows.joined(n, past)) > least_speed for n in (most, most // 2, most // 4))
