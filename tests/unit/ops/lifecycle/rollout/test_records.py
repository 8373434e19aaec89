"""A rollout as it is read out of the registry, and what is written next."""

from msgspec.structs import replace

from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import pack
from ops.lifecycle.rollout.policy import Health
from ops.lifecycle.rollout.records import Rollout, decisions, judge, newest, next_record
from ops.lifecycle.rollout.report import Course, render
from shared.kafka import Record
from shared.versions.registry import Noted, Registry, Unreadable
from shared.versions.state import Move, State
from shared.wire.codec import msgpack_encode
from tests.unit.ops.lifecycle.rollout.test_evidence import seen
from tests.unit.ops.lifecycle.rollout.test_policy import BEFORE
from tests.unit.ops.lifecycle.rollout.test_policy import PLAN as POLICY_PLAN

PLAN = replace(POLICY_PLAN, epoch=2)
STARTED = Noted(rollout="r", kind="started", reason="a new adapter", unix_ms=1, plan=pack(PLAN))


def registry_of(*records: Move | Noted) -> Registry:
    registry = Registry()
    for record in (Move(state=replace(BEFORE, epoch=1), author="ann", reason="use", unix_ms=0), *records):
        assert registry.apply(record)
    return registry


def by_hand(registry: Registry, **changes: object) -> None:
    state = replace(registry.state, epoch=registry.state.epoch + 1, **changes)
    assert registry.apply(Move(state=state, author="ann", reason="by hand", unix_ms=5))


def found(registry: Registry) -> Rollout:
    rollout = newest(registry)
    assert rollout is not None
    return rollout


def decided(registry: Registry, evidence: Evidence | None = None, now_unix_ms: int = 10) -> Move | Noted | None:
    """Write the next record, and return it."""
    record = next_record(found(registry), registry, evidence or Evidence(PLAN), Health(), now_unix_ms)
    assert record is None or registry.apply(record)
    return record


def test_a_start_that_was_cut_off_is_carried_out_unless_somebody_moved_meanwhile() -> None:
    registry = registry_of(STARTED)
    first = decided(registry)
    assert isinstance(first, Move)
    assert (first.author, first.state.rule and first.state.rule.shares) == ("rollout r", {"short": 0.01, "long": 0.01})
    registry = registry_of(STARTED)
    by_hand(registry, rung="light")
    ended = decided(registry)
    assert isinstance(ended, Noted)
    assert ended.reason == "not begun: ann was first (by hand)"


def test_a_rollout_that_is_paused_before_its_first_step_begins_once_it_is_resumed() -> None:
    registry = registry_of(STARTED, Noted(rollout="r", kind="paused", reason="paused by ann", unix_ms=2))
    assert decided(registry) is None
    assert registry.state.rule is None
    assert registry.apply(Noted(rollout="r", kind="resumed", reason="resumed by ann", unix_ms=3))
    assert isinstance(decided(registry), Move)


def test_of_two_that_are_started_at_once_the_one_that_has_begun_is_led_on() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    assert registry.apply(replace(STARTED, rollout="other"))
    assert found(registry).id == "r"
    assert registry.apply(Noted(rollout="other", kind="ended", reason="not begun", unix_ms=2))
    held = decided(registry, now_unix_ms=60_000)
    assert isinstance(held, Noted)
    assert (held.rollout, held.kind) == ("r", "hold")


def test_a_note_is_written_once_for_each_change_of_mind() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    assert decided(registry) is None  # it waits, which goes without saying
    held = decided(registry, now_unix_ms=60_000)
    assert isinstance(held, Noted)
    assert held.kind == "hold"
    assert decided(registry, now_unix_ms=61_000) is None


def test_a_person_who_moves_the_champion_ends_the_rollout_and_its_rule() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    by_hand(registry, aliases={**registry.state.aliases, "champion": "dddddddddddd"})
    decided(registry)
    assert registry.state.aliases == {"champion": "dddddddddddd", "previous": "cccccccccccc"}
    assert registry.state.rule is None
    ended = decided(registry)
    assert isinstance(ended, Noted)
    assert found(registry).outcome == "stopped"
    assert ended.reason == "alias champion was moved from bbbbbbbbbbbb to dddddddddddd"


def test_a_move_that_waits_for_its_time_freezes_a_rollout_and_a_rollback_takes_it_off() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    by_hand(registry, rung="light", effective_unix_ms=90_000)
    frozen = decided(registry, now_unix_ms=60_000)
    assert isinstance(frozen, Noted)
    assert (frozen.kind, frozen.reason) == ("freeze", "epoch 3 by ann waits for its time")
    evidence = Evidence(PLAN)
    for number in range(20):
        evidence.add(seen(2 * number, epoch=2, failed=True))
        evidence.add(seen(2 * number + 1, "control", epoch=2))
    decided(registry, evidence, now_unix_ms=61_000)
    assert registry.state == State(
        epoch=4, aliases=BEFORE.aliases, shadow_share=BEFORE.shadow_share, effective_unix_ms=0
    )
    decided(registry, evidence)
    assert found(registry).outcome == "rolled_back"


def test_an_alarm_names_the_move_that_it_takes_off() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    by_hand(registry, rung="light", effective_unix_ms=90_000)
    evidence = Evidence(PLAN)
    for number in range(20):
        evidence.add(seen(2 * number, epoch=2, failed=True))
        evidence.add(seen(2 * number + 1, "control", epoch=2))
    back = decided(registry, evidence, now_unix_ms=61_000)
    assert isinstance(back, Move)
    assert back.reason.endswith("; takes off epoch 3 by ann (by hand), which waited")


def test_a_rollout_is_led_until_the_time_of_the_move_that_ends_it() -> None:
    """Gateways send customers to the canary before that time."""
    registry = registry_of(STARTED)
    decided(registry)
    others = {"champion": "dddddddddddd"}
    by_hand(registry, aliases=others, rule=None, effective_unix_ms=90_000)
    for now in (11, 89_999):
        assert (judge(found(registry), registry, Evidence(PLAN), Health(), now).kind) == "freeze"
    ended = decided(registry, now_unix_ms=90_000)
    assert isinstance(ended, Noted)
    assert (ended.kind, ended.reason) == ("ended", "ann moved the registry: by hand")


def test_a_rollout_is_led_until_the_gateways_follow_the_scheduled_move_that_ends_it() -> None:
    """The clock of this controller may be ahead of theirs."""
    registry, lags = registry_of(STARTED), Health(unknown=["gateway g follows epoch 2, not 3"])
    decided(registry)
    by_hand(registry, aliases={"champion": "dddddddddddd"}, rule=None, effective_unix_ms=90_000)
    evidence = Evidence(PLAN)
    assert judge(found(registry), registry, evidence, lags, 95_000).kind == "freeze"
    for number in range(20):
        evidence.add(seen(2 * number, epoch=2, failed=True))
        evidence.add(seen(2 * number + 1, "control", epoch=2))
    back = next_record(found(registry), registry, evidence, lags, 96_000)
    assert isinstance(back, Move)
    assert (back.state.rule, back.state.aliases, back.state.effective_unix_ms) == (
        None,
        {"champion": "dddddddddddd"},
        0,
    )
    assert judge(found(registry), registry, evidence, Health(), 97_000).kind == "ended"


def test_shares_that_another_author_changed_end_the_rollout() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    assert registry.state.rule is not None
    by_hand(registry, rule=replace(registry.state.rule, share=0.5, shares={"short": 0.5, "long": 0.5}))
    ended = decided(registry)
    assert isinstance(ended, Move)
    assert ended.reason == "another author changed its shares"
    assert ended.state.rule is None


def test_a_move_of_its_own_to_a_share_that_is_no_step_ends_the_rollout() -> None:
    """As a controller of another release might write it."""
    registry = registry_of(STARTED)
    begun = decided(registry)
    assert isinstance(begun, Move)
    assert registry.state.rule is not None
    rule = replace(registry.state.rule, share=0.42, shares={"short": 0.42, "long": 0.42})
    registry.apply(replace(begun, state=replace(registry.state, epoch=begun.epoch + 1, rule=rule)))
    ended = decided(registry)
    assert isinstance(ended, Move)
    assert (ended.state.rule, ended.reason) == (None, "its share of 42.0% is none of its steps")


def test_a_rollout_decides_nothing_behind_a_move_that_it_cannot_read() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    assert registry.apply(Unreadable(epoch=3))
    frozen = decided(registry)
    assert isinstance(frozen, Noted)
    assert frozen.kind == "freeze"


def test_another_reason_is_noted_and_other_numbers_are_not() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    reasons = ["9 requests wait", "10 requests wait", "the breaker is open", "the breaker is open"]
    written = []
    for tick, reason in enumerate(reasons):
        health = Health(degraded=[reason])
        record = next_record(found(registry), registry, Evidence(PLAN), health, 20_000 + tick)
        written += [record.reason] if record is not None and registry.apply(record) else []
    assert written == ["9 requests wait", "the breaker is open"]


def test_a_flapping_reason_leaves_a_few_notes_an_hour() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    for tick in range(60 * 1_800):
        health = Health(degraded=["9 requests wait for 2 slots"] if tick % 2 else [])
        record = next_record(found(registry), registry, Evidence(PLAN), health, 20_000 + tick * 2_000)
        if isinstance(record, Move):
            break
        if record is not None:
            registry.apply(record)
    assert len(registry.notes) < 100, "in a day, until the deadline of progress"


def test_the_page_shows_evidence_shares_and_each_decision() -> None:
    registry, course = registry_of(STARTED), Course(Evidence(PLAN))
    decided(registry)
    for number in range(20):
        for each in (seen(2 * number, epoch=2, failed=True), seen(2 * number + 1, "control", epoch=2)):
            course.add([Record("t", 0, number, None, msgpack_encode(each))])
    decided(registry, course.evidence)
    decided(registry, course.evidence)
    page = render(found(registry), course)
    for shown in (
        "rolled back",
        "20 of 20",
        "0 of 20",
        "a new adapter",
        *(each.why for each in decisions(found(registry))),
    ):
        assert shown.replace("'", "&#39;") in page
    assert page.count("<polyline") + page.count("<path") >= 8  # six e-values, two classes
