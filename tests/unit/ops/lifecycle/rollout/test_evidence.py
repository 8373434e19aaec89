"""What observations say against a canary."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ops.lifecycle.rollout.evidence import Evidence, Side, Tally
from ops.lifecycle.rollout.plan import Plan
from shared.wire.messages import Observation

PLAN = Plan(version="aaaaaaaaaaaa", champion="bbbbbbbbbbbb", steps=(0.1,), warmup=0, epoch=1)


def seen(number: int, side: Side = "canary", **more: object) -> Observation:
    plain = Observation(
        response_id=f"r{number}",
        conversation=f"c{number}",
        lane=side,
        revision=PLAN.version if side == "canary" else PLAN.champion,
        epoch=1,
        unix_ms=number,
        bucket="short",
        ttft_ms=100.0,
    )
    return replace(plain, **more)


def evidence_of(*observations: Observation, plan: Plan = PLAN) -> Evidence:
    evidence = Evidence(plan)
    for each in observations:
        evidence.add(each)
    return evidence


def both(number: int, **of_canary: object) -> list[Observation]:
    return [seen(2 * number, **of_canary), seen(2 * number + 1, "control")]


def test_a_canary_that_always_fails_is_found_out_within_ten_answers() -> None:
    evidence = evidence_of(*(each for number in range(10) for each in both(number, failed=True, ttft_ms=None)))
    assert evidence.alarm
    assert max(evidence.tallies, key=evidence.log_e) == "failed"


@pytest.mark.parametrize(
    ("bad", "metric"),
    [
        ({"missed": True}, "missed"),
        ({"unsure": True}, "unsure"),
        ({"ttft_ms": 900.0}, "slow"),
        ({"rating": "down"}, "rating"),
    ],
)
def test_each_metric_alone_raises_the_alarm(bad: dict[str, object], metric: str) -> None:
    good = {"rating": "up"} if metric == "rating" else {}
    pairs = [[seen(2 * n, **bad), seen(2 * n + 1, "control", **good)] for n in range(60)]
    evidence = evidence_of(*(each for pair in pairs for each in pair))
    assert evidence.alarm
    assert max(evidence.tallies, key=evidence.log_e) == metric


def test_what_is_bad_on_both_sides_is_no_evidence() -> None:
    pairs = ([seen(2 * n, missed=True), seen(2 * n + 1, "control", missed=True)] for n in range(300))
    assert not evidence_of(*(each for pair in pairs for each in pair)).alarm


def test_a_conversation_counts_up_to_its_first_bad_answer() -> None:
    one = (seen(number, conversation="same", failed=number > 1) for number in range(100))
    evidence = evidence_of(*one)
    assert (evidence.tallies["failed"].answers["canary"], evidence.tallies["failed"].bad["canary"]) == (3, 1)
    assert evidence.tallies["missed"].answers["canary"] == 100


def test_later_answers_are_paired_with_later_ones() -> None:
    later = [seen(1, conversation="a"), seen(2, conversation="a", failed=True), seen(3, "control", conversation="b")]
    tally = evidence_of(*later).tallies["failed"]
    assert (tally.worse, tally.same, tally.better) == (0, 1, 0)
    assert len(tally.waiting[False]) == 1


@pytest.mark.parametrize(
    "stray",
    [{"revision": "cccccccccccc"}, {"epoch": 0}, {"lane": "champion"}, {"lane": "control"}],
    ids=["another version", "before the rollout", "another lane", "the canary's version on the control"],
)
def test_what_is_not_of_the_rollout_does_not_count(stray: dict[str, object]) -> None:
    evidence = evidence_of(seen(1, **stray))
    assert not evidence.answers
    assert not evidence.tallies["failed"].answers


def test_an_answer_counts_once_and_not_while_its_side_is_cold() -> None:
    evidence = evidence_of(seen(1), seen(2), seen(2), seen(3), plan=replace(PLAN, warmup=1))
    assert evidence.answered("canary") == 2


def test_without_a_control_the_canary_is_held_to_the_tolerated_share() -> None:
    alone = replace(PLAN, control=False)
    assert not evidence_of(*(seen(n, failed=n % 20 == 0) for n in range(400)), plan=alone).alarm
    assert evidence_of(*(seen(n, failed=n % 4 == 0) for n in range(400)), plan=alone).alarm


def test_the_tolerated_share_says_nothing_while_the_control_exceeds_it() -> None:
    tally = Tally()
    for number in range(100):
        tally.add("control", first=True, bad=number % 10 == 0)
        tally.add("canary", first=True, bad=number % 5 == 0)
    assert tally.against_share(0.05, 0.02, control=True) == -math.inf
    assert tally.against_share(0.05, 0.02, control=False) > 3


@given(st.integers(0, 2**32), st.floats(0.0, 0.9))
def test_worse_by_the_margin_is_rarely_called_worse_however_often_one_looks(seed: int, base: float) -> None:
    """Ville: the e-value of 100 rollouts at the border ever reaches 20 in 5 of them, or few more."""
    draw, alarms = random.Random(seed), 0
    for _ in range(100):
        tally = Tally()
        for _ in range(100):
            tally.add("canary", first=True, bad=draw.random() < base + 0.02)
            tally.add("control", first=True, bad=draw.random() < base)
            if tally.against_control(0.02) >= math.log(20):
                alarms += 1
                break
    assert alarms <= 18  # of a binomial with 0.05, once in 10^6


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_the_interval_holds_the_measured_difference_and_narrows(worse: int, same: int, better: int) -> None:
    few = Tally(worse=worse, same=same, better=better)
    more = Tally(worse=4 * worse, same=4 * same, better=4 * better)
    pairs = worse + same + better
    low, high = few.interval(0.05)
    assert low <= (worse - better) / max(pairs, 1) <= high
    if pairs >= 10:
        assert more.interval(0.05)[1] - more.interval(0.05)[0] < high - low
