"""The costs of an upstream's prompts and pieces are learned from the arrival times of text alone."""

import pytest

from workers.schedule.costs import CostModel
from workers.schedule.streams import PRIOR_DECODE, PRIOR_PREFILL, Pace, Paces

TOKENS = 40
PROMPT_S, PIECE_S = 0.3, 0.02


def learned(*, streams: int, together: bool, rounds: int = 60) -> CostModel:
    """An upstream that computes `streams` prompts, one after the other or all in one batch, and then their pieces."""
    costs = CostModel(decode=PRIOR_DECODE, prefill=PRIOR_PREFILL)
    paces, now_s = Paces(costs), 0.0

    def hear(pace: Pace) -> None:
        paces.heard(pace, "http://a/v1", now_s, prompt_tokens=TOKENS, rows=streams)

    for _ in range(rounds):
        sent = [Pace(now_s) for _ in range(streams)]
        for number, pace in enumerate(sent):
            now_s += PROMPT_S if not together else PROMPT_S * streams * (number == 0)
            hear(pace)
        for _ in range(32):
            now_s += PIECE_S
            for pace in sent:
                hear(pace)
    return costs


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("streams", [1, 4])
def test_a_prompt_takes_its_own_time_however_many_are_computed(streams: int, *, together: bool) -> None:
    costs = learned(streams=streams, together=together)
    assert costs.prefill_ms(TOKENS) == pytest.approx(PROMPT_S * 1_000, rel=0.1)
    assert costs.decode_ms(streams, 0) == pytest.approx(PIECE_S * 1_000, rel=0.15)
