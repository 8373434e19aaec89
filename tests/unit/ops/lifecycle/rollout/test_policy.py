"""The next step of a rollout."""

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ops.lab.rollout.trials import Traffic, equal, row, run, worse
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan, pack, steps_of, unpack
from ops.lifecycle.rollout.policy import MOVES, Decision, Health, decide, first_state, lacks_room, next_state, standings
from shared.versions.state import Move, State
from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS
from tests.unit.ops.lifecycle.rollout.test_evidence import seen

PLAN = Plan(
    version="aaaaaaaaaaaa",
    champion="bbbbbbbbbbbb",
    steps=(0.01, 0.1, 0.5),
    classes=("short", "long"),
    min_answers=4,
    min_s=10.0,
    warmup=0,
    salt="s",
    epoch=1,
)
BEFORE = State(aliases={"champion": PLAN.champion, "previous": "cccccccccccc"}, shadow_share=0.1)


class Rollout:
    """A registry with one rollout in it, and what it has seen."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.plan, self.evidence, self.now_ms, self.number = plan, Evidence(plan), 0, 0
        self.moves = [self._move(first_state(plan, BEFORE))]

    def _move(self, state: State) -> Move:
        return Move(state=state, author="rollout", reason="", unix_ms=self.now_ms)

    @property
    def state(self) -> State:
        return self.moves[-1].state

    def answer(self, bucket: Bucket, times: int = 1, *, failed: bool = False) -> None:
        for _ in range(times):
            self.number += 2
            common = {"bucket": bucket, "epoch": self.state.epoch, "unix_ms": self.now_ms + 500 * self.number}
            self.evidence.add(seen(self.number, failed=failed, **common))
            self.evidence.add(seen(self.number + 1, "control", **common))

    def decide(self, health: Health | None = None) -> Decision:
        at = standings(self.plan, self.moves)
        return decide(self.plan, self.evidence, self.state, at, health or Health(), self.now_ms)

    def move(self, decision: Decision) -> None:
        self.moves.append(self._move(next_state(self.plan, decision, self.state, self.state.epoch + 1)))

    def step(self, seconds: float = 10.0, health: Health | None = None) -> Decision:
        """Let time pass, and carry out what is decided then."""
        self.now_ms += int(seconds * 1_000)
        decision = self.decide(health)
        if decision.kind in MOVES:
            self.move(decision)
        return decision


def test_a_good_canary_goes_up_each_step_and_becomes_the_champion() -> None:
    rollout = Rollout()
    assert rollout.step(5).kind == "wait"
    for share in (0.1, 0.5):
        rollout.answer("short", 4)
        rollout.answer("long", 4)
        assert rollout.step().kind == "promote"
        assert rollout.state.rule is not None
        assert rollout.state.rule.shares == {"short": share, "long": share}
        assert rollout.state.rule.salt == "s"
    rollout.answer("short", 4)
    rollout.answer("long", 4)
    assert rollout.step().kind == "load"
    assert rollout.state.loading == {"champion": PLAN.version}
    assert rollout.step().kind == "wait"
    assert rollout.step(health=Health(champions_loaded=True)).kind == "finish"
    assert rollout.state.aliases == {"champion": PLAN.version, "previous": PLAN.champion}
    assert (rollout.state.rule, rollout.state.loading, rollout.state.shadow_share) == (None, {}, 0.1)


def test_no_class_passes_a_step_before_the_others_have_answers_in_it() -> None:
    rollout = Rollout()
    rollout.answer("short", 40)
    held = rollout.step()
    assert (held.kind, rollout.state.rule and rollout.state.rule.shares) == ("hold", {"short": 0.01, "long": 0.01})
    assert "long has 0 of 4" in held.reason
    rollout.answer("long", 4)
    assert rollout.step().kind == "promote"
    assert "short has 0" in rollout.step().reason, "the first step's answers do not count in the second"


def test_a_bad_canary_is_rolled_back_also_while_degraded_or_paused() -> None:
    rollout = Rollout()
    rollout.answer("short", 12, failed=True)
    decision = rollout.step(0, Health(degraded=["the breaker is open"], paused="paused by ann"))
    assert decision.kind == "roll back"
    assert "failed, 100.0% of the canary's and 0.0% of the control's" in decision.reason
    assert rollout.state.aliases == BEFORE.aliases
    assert rollout.state.rule is None


@pytest.mark.parametrize(
    ("health", "kind"),
    [(Health(degraded=["lag"]), "freeze"), (Health(paused="paused by ann"), "hold")],
    ids=["degraded", "paused"],
)
def test_nothing_is_promoted_meanwhile(health: Health, kind: str) -> None:
    rollout = Rollout()
    rollout.answer("short", 4)
    rollout.answer("long", 4)
    assert rollout.step(health=health).kind == kind
    assert rollout.step().kind == "promote"


def test_a_rollout_is_frozen_while_its_control_is_bad_or_the_ladder_is_held() -> None:
    rollout = Rollout()
    for number in range(30):
        for side in ("canary", "control"):
            rollout.evidence.add(seen(1_000 + number * 2 + (side == "control"), side, missed=number % 3 == 0))
    assert rollout.step().kind == "freeze"
    rollout = Rollout()
    rollout.answer("short", 4)
    rollout.moves[-1] = replace(rollout.moves[-1], state=replace(rollout.state, rung="light"))
    assert rollout.step().reason == "an operator holds the ladder at light"


def overloaded(paused: str | None = None) -> Health:
    return Health(degraded=["9 requests wait for 2 slots"], degraded_ms=60_000, paused=paused)


@pytest.mark.parametrize(
    ("paused", "stopped"),
    [(None, "freeze"), ("paused by ann", "hold"), ("waits for: replyline rollout approve", "hold")],
)
def test_a_rollout_that_stays_degraded_goes_a_step_down_a_minute_and_is_stopped_on_the_first(
    paused: str | None, stopped: str
) -> None:
    rollout = Rollout()
    for bucket in PLAN.classes * 2:
        rollout.answer(bucket, 4)
    while rollout.state.rule and rollout.state.rule.shares != {"short": 0.5, "long": 0.5}:
        assert rollout.step().kind == "promote"
        for bucket in PLAN.classes:
            rollout.answer(bucket, 4)
    seen_kinds = [rollout.step(30, overloaded(paused)).kind for _ in range(6)]
    assert seen_kinds == [stopped, "step down", stopped, "step down", stopped, stopped]
    assert rollout.state.rule is not None
    assert rollout.state.rule.shares == {"short": 0.01, "long": 0.01}
    for bucket in PLAN.classes:
        rollout.answer(bucket, 4)
    assert rollout.step(60).kind == "wait", "each step down makes the next step longer"


@pytest.mark.parametrize("paused", [None, "paused by ann"])
@pytest.mark.parametrize("is_control_bad", [False, True], ids=["overloaded", "the control is bad"])
def test_a_rollout_that_stays_degraded_on_its_first_step_ends(is_control_bad: bool, paused: str | None) -> None:
    """With `--steps 50` its lanes have all the customers."""
    rollout, kinds = Rollout(replace(PLAN, steps=(0.5,))), []
    for second in range(0, 620, 20):
        for number in range(20 if is_control_bad else 0):
            for side in ("canary", "control"):
                at = {"unix_ms": 1_000 * (second + number)}
                rollout.evidence.add(
                    seen(10_000 + 2 * (second + number) + (side == "control"), side, missed=True, **at)
                )
        ms = 20_000 if second else 0
        reasons = [] if is_control_bad else ["9 requests wait"]
        decision = rollout.step(ms / 1_000, Health(degraded=reasons, degraded_ms=1_000 * second, paused=paused))
        kinds.append(decision.kind)
    before, end = kinds[:-1], kinds[-1]
    assert (set(before), end) == ({"hold" if paused else "freeze"}, "end")
    assert "degraded for ten minutes on the first step" in decision.reason


@pytest.mark.parametrize(("bad_s", "kind"), [(10, "freeze"), (50, "freeze"), (90, "step down")])
def test_only_a_control_that_is_bad_for_a_minute_costs_a_step(bad_s: int, kind: str) -> None:
    """One crash of a control's worker may end a quarter of its last answers."""
    rollout = Rollout()
    for bucket in PLAN.classes:
        rollout.answer(bucket, 4)
    assert rollout.step().kind == "promote"
    rollout.now_ms += 100_000
    for number in range(20 + bad_s):
        is_bad, at = number >= 20, rollout.now_ms + 1_000 * (number - 20 - bad_s)
        for side in ("canary", "control"):
            rollout.evidence.add(seen(10_000 + 2 * number + (side == "control"), side, missed=is_bad, unix_ms=at))
    assert rollout.step(0).kind == kind


def test_a_promotion_needs_the_slots_and_says_the_numbers() -> None:
    rollout = Rollout(replace(PLAN, classes=("short",)))
    rollout.answer("short", 4)
    tight = Health(slots={"canary": 1, "control": 1}, busy=9)
    decision = rollout.step(health=tight)
    assert decision.kind == "hold"
    assert "10% of 9 requests at once need 0.9 of lane canary's 1 slots" in decision.reason
    assert rollout.step(health=dataclasses.replace(tight, busy=8)).kind == "promote"


@pytest.mark.parametrize(("canary", "control"), [(8, 16), (16, 8)])
def test_lanes_of_unequal_size_get_no_share_and_the_line_says_their_sizes(canary: int, control: int) -> None:
    """At the start too: the smaller lane answers later, so two equal versions would differ."""
    rollout = Rollout(replace(PLAN, classes=("short",)))
    rollout.answer("short", 4)
    unequal = Health(slots={"canary": canary, "control": control}, busy=1)
    decision = rollout.step(health=unequal)
    assert (decision.kind, decision.reason) == ("hold", lacks_room(PLAN, PLAN.steps[0], unequal))
    assert f"lane canary has {canary} slots and lane control has {control} slots" in decision.reason
    assert lacks_room(replace(PLAN, control=False), PLAN.steps[0], unequal) is None


@pytest.mark.parametrize("health", [Health(), Health(degraded=["lag"]), Health(unknown=["no gateway reports"])])
def test_a_rollout_without_progress_ends_after_its_deadline(health: Health) -> None:
    rollout = Rollout(replace(PLAN, progress_s=3_600.0))
    assert rollout.step(3_600, health).kind != "end"
    resumed = dataclasses.replace(health, resumed_unix_ms=3_600_000)
    assert rollout.step(11, resumed).kind != "end"
    assert rollout.step(0, health).kind == "end"
    assert rollout.state.aliases == BEFORE.aliases


def test_what_the_champions_workers_load_is_progress_only_if_the_rollout_asked_for_it() -> None:
    rollout = Rollout(replace(PLAN, classes=("short",), steps=(0.5,)))
    loaded = Health(champions_loaded=True)
    rollout.moves[-1] = replace(rollout.moves[-1], state=replace(rollout.state, loading={"champion": PLAN.version}))
    assert rollout.step(health=loaded).kind == "hold"
    rollout.answer("short", 4)
    assert [rollout.step(health=loaded).kind for _ in range(2)] == ["load", "finish"]
    rollout.moves[1] = replace(rollout.moves[1], state=replace(rollout.moves[1].state, loading={}))
    rollout.moves.pop()
    assert rollout.decide(loaded).kind == "load", "it was removed in the meantime"


def test_a_person_who_loads_another_version_is_waited_for() -> None:
    rollout = Rollout()
    rollout.moves[-1] = replace(rollout.moves[-1], state=replace(rollout.state, loading={"champion": "dddddddddddd"}))
    decision = rollout.step()
    assert decision.kind == "hold"
    assert "replyline versions unload" in decision.reason


@pytest.mark.parametrize("of", [{"steps": (0.5,), "ab": True}, {"steps": (0.5,)}, {"steps": (0.1, 0.5)}])
@pytest.mark.parametrize("paused", [None, "paused by ann: a holiday"])
def test_a_rollout_ends_before_its_first_observations_are_deleted(of: dict[str, Any], paused: str | None) -> None:
    """A controller that starts later would judge it by the rest of them."""
    rollout = Rollout(replace(PLAN, progress_s=31_536_000.0, **of))
    assert rollout.step(13 * 86_400 - 1, Health(paused=paused)).kind == "hold"
    decision = rollout.step(10, Health(paused=paused))
    assert decision.kind == "end"
    assert "13 days" in decision.reason
    assert rollout.state.aliases == BEFORE.aliases


def test_a_comparison_ends_where_both_were() -> None:
    rollout = Rollout(replace(PLAN, steps=(0.5,), ab=True, classes=("short",)))
    rollout.answer("short", 4)
    assert rollout.step().kind == "end"
    assert (rollout.state.aliases, rollout.state.rule) == (BEFORE.aliases, None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(BUCKETS), st.integers(0, 6), st.booleans(), st.floats(0, 30), st.sampled_from([None, "lag"])
        ),
        max_size=40,
    )
)
def test_shares_only_grow_by_evidence_of_their_class_and_never_while_degraded(
    story: list[tuple[Bucket, int, bool, float, str | None]],
) -> None:
    plan = replace(PLAN, classes=BUCKETS)
    rollout = Rollout(plan)
    answered = dict.fromkeys(BUCKETS, 0)
    for bucket, times, failed, seconds, degraded in story:
        before = rollout.state
        rollout.answer(bucket, times, failed=failed)
        answered[bucket] += times
        decision = rollout.step(seconds, Health(degraded=[degraded] if degraded else [], champions_loaded=True))
        if decision.kind in ("finish", "roll back"):
            assert rollout.state.rule is None
            return
        assert before.rule is not None
        assert rollout.state.rule is not None
        if degraded:
            assert rollout.state == before
        for each in BUCKETS:
            old, new = plan.steps.index(before.rule.shares[each]), plan.steps.index(rollout.state.rule.shares[each])
            assert new in (old, old + 1)
            if new > old:
                assert answered[each] >= plan.min_answers
                answered[each] = 0
        assert rollout.state.epoch - before.epoch in (0, 1)


@pytest.mark.parametrize("traffic", equal(2.0), ids=lambda traffic: traffic.name)
def test_of_equal_versions_none_is_rolled_back_in_virtual_time(traffic: Traffic) -> None:
    plan = replace(PLAN, min_answers=30, classes=("short", "medium"), warmup=5)
    assert row(plan, traffic, 3, seed=7).rolled_back == 0


@pytest.mark.parametrize("traffic", worse(2.0), ids=lambda traffic: traffic.name)
def test_a_worse_canary_is_rolled_back_whenever_and_wherever_it_is_worse(traffic: Traffic) -> None:
    found = row(replace(PLAN, classes=BUCKETS, min_answers=50), traffic, 2, seed=7)
    assert (found.rolled_back, found.promoted) == (2, 0)
    assert found.failed is not None
    assert found.failed <= 25 or not traffic.only


def test_a_step_down_waits_for_no_clock_of_the_controller_before() -> None:
    """It was an hour ahead as it promoted the canary."""
    rollout = Rollout(replace(PLAN, classes=("short",)))
    rollout.answer("short", 4)
    assert rollout.step().kind == "promote"
    rollout.now_ms -= 3_600_000
    lag = Health(degraded=["lag"], degraded_ms=60_000)
    assert rollout.step(60, lag).kind == "step down"


def test_a_run_is_the_same_for_a_seed() -> None:
    assert run(PLAN, Traffic(bad=0.2), 3) == run(PLAN, Traffic(bad=0.2), 3)


def test_a_plan_is_read_as_it_was_written() -> None:
    assert unpack(pack(PLAN)) == PLAN


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": ()},
        {"steps": (0.0, 0.5)},
        {"steps": (0.5, 0.1)},
        {"classes": ()},
        {"min_s": -1.0},
        {"min_s": math.nan},
        {"min_s": math.inf},
        {"alpha": 0.0},
        {"margin": 0.0},
        {"margin": 1.0},
        *({name: number} for name in ("progress_s", "at_most") for number in (math.nan, math.inf)),
    ],
)
def test_a_plan_by_which_no_version_can_be_judged_is_not_read(wrong: dict[str, Any]) -> None:
    """A damaged record or another program may hold one: nothing is promoted by it, and no controller ends."""
    with pytest.raises(msgspec.MsgspecError):
        unpack(pack(replace(PLAN, **wrong)))


def test_steps_are_percentages_that_grow() -> None:
    assert steps_of("1,10,50", control=True) == (0.01, 0.1, 0.5)
    for wrong in ("1,x", "10,1", "0", "60", "5,5"):
        with pytest.raises(ValueError, match=wrong):
            steps_of(wrong, control=True)
    assert steps_of("100", control=False) == (1.0,)
