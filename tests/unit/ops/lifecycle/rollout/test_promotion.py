"""Conditions on promoting a rollout to its next step, or its version to the champion."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from ops.lifecycle.rollout.policy import Health
from ops.lifecycle.rollout.tally import Side
from tests.unit.ops.lifecycle.rollout.test_evidence import seen
from tests.unit.ops.lifecycle.rollout.test_policy import PLAN, Rollout


@pytest.mark.parametrize(("named", "name"), [({"language": "zh"}, "lang:zh"), ({"tenant": "acme"}, "tenant:acme")])
def test_a_version_is_not_made_the_champion_of_a_language_or_tenant_that_has_too_few_answers(
    named: dict[str, Any], name: str
) -> None:
    rollout = Rollout(replace(PLAN, steps=(0.5,), classes=("short",)))
    rollout.answer("short", 4)
    assert rollout.step().kind == "load"
    for count in range(1, 5):
        for each in (seen(2 * count + 100, **named), seen(2 * count + 101, "control", **named)):
            rollout.evidence.add(each)
        finishing = rollout.decide(Health(champions_loaded=True))
        few = ("hold", f"too few answers: {name} has {count} of 4")
        assert (finishing.kind, finishing.reason) == few or (finishing.kind, count) == ("finish", 4)


def test_one_metric_that_leans_far_against_the_canary_holds_each_step_to_the_last() -> None:
    """Even where the metrics together give no alarm, and while the champion's workers load it already."""
    rollout = Rollout(replace(PLAN, steps=(0.5,), classes=("short",), min_answers=30))
    rollout.answer("short", 30)
    assert rollout.step().kind == "load"
    alarm = -math.log(PLAN.alpha)
    while rollout.evidence.tallies["rating"].log_e < alarm:
        rollout.number += 2
        common = {"epoch": rollout.state.epoch, "unix_ms": 500 * rollout.number}
        rollout.evidence.add(seen(rollout.number, rating="down", ttft_ms=None, **common))
        rollout.evidence.add(seen(rollout.number + 1, "control", rating="up", ttft_ms=None, **common))
        assert rollout.number < 4_000
    assert not rollout.evidence.alarm
    assert rollout.step(health=Health(champions_loaded=True)).kind == "hold"


def diverted(rollout: Rollout, of: Mapping[Side, int], **named: Any) -> None:
    """Let the champion answer this many questions of each side, which come in turn."""
    for at in range(max(of.values())):
        for side in (side for side, count in of.items() if at < count):
            rollout.number += 2
            common = {"epoch": rollout.state.epoch, "unix_ms": rollout.now_ms, "answered_by": PLAN.champion}
            rollout.evidence.add(seen(rollout.number, side, censored=True, **(common | named)))


@pytest.mark.parametrize(
    ("of", "named", "why"),
    [
        ({"canary": 400}, {}, "no time"),
        ({"control": 400}, {}, "no time"),
        ({"canary": 150, "control": 150}, {}, "no time"),
        ({"canary": 60}, {}, "no time"),  # of 1,060, far more than its control's
        ({"canary": 19, "control": 19}, {}, ""),
        ({"canary": 12}, {}, "in doubt"),
        ({"canary": 4}, {}, ""),
        ({"canary": 60, "control": 56}, {"bucket": "long"}, "no time"),
        ({"canary": 30, "control": 26}, {"bucket": "long"}, "in doubt"),
        ({"canary": 30}, {"tenant": "acme"}, "no time"),
        ({"canary": 30}, {"language": "zh"}, "no time"),
    ],
)
@pytest.mark.parametrize("passed", [False, True], ids=["before a step", "before the end"])
def test_a_version_is_not_promoted_for_questions_that_the_champion_answered(
    of: dict[Side, int], named: dict[str, Any], why: str, passed: bool
) -> None:
    rollout = Rollout(replace(PLAN, steps=(0.5,)) if passed else PLAN)
    rollout.answer("short", 600)
    rollout.answer("long", 400)
    if passed:
        assert rollout.step().kind == "load"
    diverted(rollout, of, **named)
    decision = rollout.step(health=Health(champions_loaded=True))
    assert decision.kind == ("hold" if why else "finish" if passed else "promote")
    assert decision.reason.startswith(why)
    assert not rollout.evidence.alarm


@pytest.mark.parametrize("side", ["canary", "control"])
def test_a_lane_without_time_for_any_question_is_named_where_answers_are_too_few(side: Side) -> None:
    rollout = Rollout(PLAN)
    diverted(rollout, {side: 30})
    decision = rollout.step()
    assert (decision.kind, decision.reason.startswith("too few answers: short has 0")) == ("hold", True)
    assert f"; no time: the champion answers 100% of lane {side}'s questions" in decision.reason
    assert decision.reason.endswith("; add as many workers to lane canary and to lane control")


@pytest.mark.parametrize("side", ["canary", "control"])
@pytest.mark.parametrize(
    ("observed", "cause"),
    [(0, "no question of lane {} counts"), (30, "the model of lane {} answered 0 of 30 questions")],
    ids=["without any observation", "answered by the FAQ"],
)
def test_a_lane_whose_model_answers_nothing_is_named_with_the_cause(side: Side, observed: int, cause: str) -> None:
    rollout = Rollout(PLAN)
    for number in range(60):
        for each in ("canary", "control"):
            if each != side or number < observed:
                by = "" if each == side else None
                rollout.number += 1
                found = seen(rollout.number, each, bucket="short", epoch=1, unix_ms=2_000 * rollout.number)
                rollout.evidence.add(found if by is None else replace(found, answered_by="", ttft_ms=None))
    decision = rollout.step()
    assert (decision.kind, decision.reason.startswith("too few answers: short has 0")) == ("hold", True)
    assert cause.format(side) in decision.reason


@pytest.mark.parametrize(
    ("canary", "control", "kind"),
    [(40, 14, "hold"), (14, 40, "promote"), (14, 14, "promote"), (0, 0, "promote"), (100, 100, "hold")],
)
def test_a_version_is_not_promoted_while_it_may_miss_more_deadlines_than_the_margin(
    canary: int, control: int, kind: str
) -> None:
    """Of 1,000 answers; too small a difference for an alarm. If both sides miss many, chance may hide one."""
    rollout = Rollout()
    for number in range(1_000):
        rollout.number += 2
        common = {"bucket": "long" if number % 2 else "short", "epoch": 1, "unix_ms": 2_000 * rollout.number}
        for side, missed in (("canary", canary), ("control", control)):
            is_missed = (number + 1) * missed // 1_000 > number * missed // 1_000
            rollout.evidence.add(seen(rollout.number + (side == "control"), side, missed=is_missed, **common))
    assert not rollout.evidence.alarm
    assert rollout.step().kind == kind


@pytest.mark.parametrize(("together", "kind"), [(1, "promote"), (7, "hold")])
def test_questions_that_are_lost_together_say_less_of_their_share(together: int, kind: str) -> None:
    """A queue that is long by chance costs several in a row. Of 1,000 questions each side loses 14 or 15."""
    rollout = Rollout(replace(PLAN, classes=("short",)))
    for number in range(1_000):
        rollout.number += 2
        common = {"epoch": 1, "unix_ms": 2_000 * rollout.number}
        sides: tuple[tuple[Side, int], ...] = (("canary", number), ("control", number + 36 * together))
        for side, at in sides:
            lost = {"censored": True, "answered_by": PLAN.champion} if at % (70 * together) < together else {}
            rollout.evidence.add(seen(rollout.number + (side == "control"), side, **(common | lost)))
    assert rollout.step().kind == kind


def test_questions_that_were_diverted_before_a_step_do_not_hold_the_next() -> None:
    rollout = Rollout()
    rollout.answer("short", 700)
    rollout.answer("long", 100)
    diverted(rollout, {"canary": 3})
    assert rollout.step().kind == "promote"
    diverted(rollout, {"canary": 12})
    rollout.answer("short", 4)
    rollout.answer("long", 4)
    assert rollout.step().kind == "hold"
    rollout.answer("short", 1_500)
    rollout.answer("long", 1_500)
    diverted(rollout, {"control": 12})
    assert rollout.step().kind == "promote"
