"""What observations say against a canary."""

import math
import random
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.tally import Side, Tally
from shared.wire.messages import Bucket
from shared.wire.reports import Observation

PLAN = Plan(version="aaaaaaaaaaaa", champion="bbbbbbbbbbbb", steps=(0.1,), warmup=0, epoch=1)


def seen(number: int, side: Side = "canary", **more: object) -> Observation:
    revision = PLAN.version if side == "canary" else PLAN.champion
    plain = Observation(
        response_id=f"r{number}",
        conversation=f"c{number}",
        lane=side,
        revision=revision,
        answered_by=revision,
        epoch=1,
        unix_ms=1_000 * number,
        bucket="short",
        moved=False,
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
    assert evidence.worst.metric == "failed"


@pytest.mark.parametrize(
    ("bad", "metric"),
    [
        ({"missed": True}, "missed"),
        ({"unsure": True}, "unsure"),
        ({"ttft_ms": 900.0}, "slow"),
        ({"rating": "down"}, "rating"),
        ({"cancelled": True}, "cancelled"),
        ({"handed_over": True}, "handed_over"),
    ],
)
def test_each_metric_alone_raises_the_alarm(bad: dict[str, object], metric: str) -> None:
    good = {"rating": "up"} if metric == "rating" else {}
    pairs = [[seen(2 * n, **bad), seen(2 * n + 1, "control", **good)] for n in range(60)]
    evidence = evidence_of(*(each for pair in pairs for each in pair))
    assert evidence.alarm
    assert evidence.worst.metric == metric


@pytest.mark.parametrize("bad", [{"failed": True}, {"unsure": True}, {"handed_over": True}, {"missed": True}, {}])
def test_a_moved_conversations_first_answer_counts_but_for_its_time(bad: dict[str, object]) -> None:
    """A canary that fails each conversation which a promotion brings to it is worse; one that answers it late need not
    be, since its cache is cold."""
    late: dict[str, object] = {"moved": True, "ttft_ms": 900.0}
    pairs = [[seen(2 * n, **late, **bad), seen(2 * n + 1, "control", moved=True)] for n in range(60)]
    evidence = evidence_of(*(each for pair in pairs for each in pair))
    assert evidence.alarm == (bad not in ({}, {"missed": True}))
    assert evidence.answered("canary") == 0


@pytest.mark.parametrize("moved", [False, None], ids=["new", "perhaps moved"])
def test_a_slow_version_is_found_by_first_texts_of_new_conversations(moved: bool | None) -> None:
    """Where customers ask one question each there are no others."""
    pairs = [[seen(2 * n, moved=moved, ttft_ms=900.0), seen(2 * n + 1, "control", moved=moved)] for n in range(60)]
    assert evidence_of(*(each for pair in pairs for each in pair)).alarm == (moved is False)


@pytest.mark.parametrize(("for_s", "alarm"), [(9, False), (90, True)], ids=["one busy period", "slow for long"])
@pytest.mark.parametrize("bucket", ["short", "long"])
def test_answers_that_waited_in_one_queue_are_slow_once(bucket: Bucket, for_s: int, alarm: bool) -> None:
    """By chance one of two equal lanes is busy while the other is not."""
    evidence = evidence_of(*(each for number in range(30) for each in both(number)))
    for number in range(60, 60 + 8 * for_s, 2):
        common: dict[str, object] = {"unix_ms": 60_000 + 125 * number, "bucket": bucket}
        evidence.add(seen(number, ttft_ms=900.0, **common))
        evidence.add(seen(number + 1, "control", **common))
    assert evidence.alarm == alarm


def test_what_is_bad_on_both_sides_is_no_evidence() -> None:
    pairs = ([seen(2 * n, missed=True), seen(2 * n + 1, "control", missed=True)] for n in range(300))
    assert not evidence_of(*(each for pair in pairs for each in pair)).alarm


@pytest.mark.parametrize("metric", ["rating", "cancelled", "handed_over"])
@pytest.mark.parametrize(("customers", "alarm"), [(1, False), (60, True)])
def test_one_customer_alone_ends_no_rollout(metric: str, customers: int, *, alarm: bool) -> None:
    """Each answer names its version, and a customer may begin many conversations."""
    is_rating, evidence = metric == "rating", Evidence(PLAN)
    for number in range(60):
        who = f"{number % customers:x}"
        act: dict[str, object] = {"customer": who, **({"rating": "down"} if is_rating else {metric: True})}
        for each in both(number) if is_rating else ():
            evidence.add(each)
        evidence.add(seen(2 * number, **act))
        evidence.add(seen(2 * number + 1, "control", **({"rating": "up"} if is_rating else {})))
    assert evidence.alarm == alarm


def test_a_conversation_counts_up_to_its_first_bad_answer() -> None:
    one = (seen(number, conversation="same", failed=number > 1) for number in range(100))
    evidence = evidence_of(*one)
    assert (evidence.tallies["failed"].answers["canary"], evidence.tallies["failed"].bad["canary"]) == (3, 1)
    assert evidence.tallies["unsure"].answers["canary"] == 100


def test_later_answers_are_paired_with_later_ones() -> None:
    later = [seen(1, conversation="a"), seen(2, conversation="a", failed=True), seen(3, "control", conversation="b")]
    tally = evidence_of(*later).tallies["failed"]
    assert (tally.worse, tally.same, tally.better) == (0, 1, 0)
    assert len(tally.waiting[False]) == 1


@pytest.mark.parametrize(
    "stray",
    [{"revision": "cccccccccccc"}, {"epoch": 0}, {"lane": "champion"}, {"lane": "control"}, {"censored": True}],
    ids=["another version", "before the rollout", "another lane", "the canary's version on the control", "censored"],
)
def test_what_is_not_of_the_rollout_does_not_count(stray: dict[str, object]) -> None:
    evidence = evidence_of(seen(1, **stray))
    assert not evidence.answers
    assert not evidence.tallies["failed"].answers


@pytest.mark.parametrize("side", ["canary", "control"])
def test_a_rating_from_another_gateway_counts_for_the_version_of_its_answer(side: Side) -> None:
    rating = {"revision": "", "rating": "down", "ttft_ms": None}
    evidence = evidence_of(seen(1, side), seen(1, side, **rating), seen(2, side, **rating))
    assert evidence.tallies["rating"].bad == {side: 1}, "an answer that is not known counts nowhere"


def test_an_answer_counts_once_and_not_while_its_side_is_cold() -> None:
    evidence = evidence_of(seen(1), seen(2), seen(2), seen(3), plan=replace(PLAN, warmup=1))
    assert evidence.answered("canary") == 2


@pytest.mark.parametrize("side", ["canary", "control"])
@pytest.mark.parametrize("end", [{}, {"missed": True}, {"unsure": True}], ids=["an FAQ entry", "a fallback", "unsure"])
def test_an_answer_that_no_model_wrote_is_not_counted_as_one_of_the_version(side: Side, end: dict[str, object]) -> None:
    """A shop may answer nearly all questions without its model; its bad answers are judged all the same."""
    evidence = evidence_of(*(seen(number, side, answered_by="", **end) for number in range(60)))
    assert evidence.answered(side) == 0
    assert evidence.tallies["missed"].answers[side] == 60
    assert evidence.control_bad(60_000) == (bool(end.get("missed")) if side == "control" else None)


def test_without_a_control_the_canary_is_held_to_the_tolerated_share() -> None:
    alone = replace(PLAN, control=False)
    assert not evidence_of(*(seen(n, failed=n % 20 == 0) for n in range(400)), plan=alone).alarm
    assert evidence_of(*(seen(n, failed=n % 4 == 0) for n in range(400)), plan=alone).alarm


@given(st.integers(0, 2**32), st.floats(0.0, 0.9))
def test_worse_by_the_margin_is_rarely_called_worse_however_often_one_looks(seed: int, base: float) -> None:
    """Ville: the e-value of 100 rollouts at the border ever reaches 20 in 5 of them, or few more."""
    draw, alarms = random.Random(seed), 0
    for _ in range(100):
        tally = Tally(PLAN, "all", "failed", 1.0)
        for number in range(100):
            tally.add("canary", first=True, bad=draw.random() < base + 0.02, unix_ms=1_000 * number)
            tally.add("control", first=True, bad=draw.random() < base, unix_ms=1_000 * number)
            if tally.log_e >= math.log(20):
                alarms += 1
                break
    assert alarms <= 18  # of a binomial with 0.05, once in 10^6


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_the_interval_holds_the_measured_difference_and_narrows(worse: int, same: int, better: int) -> None:
    few = Tally(PLAN, "all", "failed", 1.0, worse=worse, same=same, better=better)
    more = Tally(PLAN, "all", "failed", 1.0, worse=4 * worse, same=4 * same, better=4 * better)
    pairs = worse + same + better
    low, high = few.interval(0.05)
    assert low <= (worse - better) / max(pairs, 1) <= high
    if pairs >= 10:
        assert more.interval(0.05)[1] - more.interval(0.05)[0] < high - low


def answers_to_the_alarm(good: int, bad: float, gap_ms: int) -> int:
    """Return after how many answers of the canary that is bad in this share the alarm comes, after good ones. Answers
    of both sides come in turns, one every `gap_ms`."""
    evidence = Evidence(PLAN)
    for count in range(1 - good, 1_000):
        is_bad = count > 0 and round(bad * count) > round(bad * (count - 1))
        for each in both(good + count, failed=is_bad):
            evidence.add(replace(each, unix_ms=gap_ms * each.unix_ms // 1_000))
        if evidence.alarm:
            return count
    raise AssertionError("no alarm")


@pytest.mark.parametrize(("bad", "most"), [(1.0, 6), (0.3, 38)])
@pytest.mark.parametrize("good", [0, 50, 1_000])
@pytest.mark.parametrize("gap_ms", [1_000, 250])
def test_late_damage_is_found_as_fast_as_early_damage(good: int, bad: float, most: int, gap_ms: int) -> None:
    assert answers_to_the_alarm(good, bad, gap_ms) <= most


@pytest.mark.parametrize("control_bad", [0, 5])
@pytest.mark.parametrize("often", [(1, 1), (2, 3), (1, 3)], ids=["all", "two thirds", "a third"])
@pytest.mark.parametrize("named", [{"bucket": "long"}, {"language": "zh"}, {"tenant": "acme"}], ids=str)
def test_a_class_loses_about_25_customers_beyond_its_controls(
    named: dict[str, object], often: tuple[int, int], control_bad: int
) -> None:
    """Also if its control's first answers happen to be as bad."""
    (some, of), evidence, beyond = often, Evidence(PLAN), 0
    for number in range(15_000):
        is_rare, place = number % 100 == 0, number // 100
        plain = {"tenant": "shop", "language": "en"} | (named if is_rare else {})
        is_lost, of_control = is_rare and place % of < some, is_rare and place < control_bad
        beyond += is_lost - of_control
        evidence.add(seen(2 * number, **{**plain, "failed": is_lost}))
        evidence.add(seen(2 * number + 1, "control", **{**plain, "failed": of_control}))
        if evidence.alarm:
            break
    assert evidence.alarm
    assert beyond <= 28  # the margin lets 2 % of the class's answers pass


@pytest.mark.parametrize(
    ("causes", "size", "good", "control_causes", "is_spent"),
    [
        (24, 1, 0, 0, False),
        (26, 1, 0, 0, True),
        (26, 1, 0, 24, False),
        (12, 8, 0, 0, False),
        (20, 8, 0, 0, True),
        (20, 8, 0, 10, False),
        (20, 8, 2_000, 0, False),
        (40, 8, 2_000, 0, True),
    ],
    ids=["24", "25", "as the control", "12 crashes", "20 crashes", "chance", "within the margin", "beyond the margin"],
)
def test_the_hard_stop_takes_25_customers_beyond_the_controls_the_margin_and_chance(
    causes: int, size: int, good: int, control_causes: int, is_spent: bool
) -> None:
    """Between these causes, each of as many customers, answers are good on both sides."""
    for plan in (PLAN, replace(PLAN, control=False)):
        tally = Tally(plan, "long", "missed", 1.0)
        for at in range(causes):
            for number in range(good // causes):
                for side in get_args(Side):
                    tally.add(side, first=True, bad=False, unix_ms=100_000 * at + 10 * number)
            for side in get_args(Side):
                bad = side == "canary" or at < control_causes
                for each in range(size if bad else 1):
                    tally.add(side, first=True, bad=bad, unix_ms=100_000 * at + 50_000 + 10 * each)
        assert tally.is_spent == (is_spent and plan.control)


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_a_control_that_answers_less_than_its_canary_makes_no_equal_version_worse(share: float) -> None:
    """One of the control's two workers is gone, while a share of both sides' answers fails."""
    alarms = 0
    for seed in range(10):
        draw, evidence = random.Random(seed), Evidence(PLAN)
        for number in range(5_000):
            side: Side = "canary" if draw.random() < 1 / 1.6 else "control"
            evidence.add(seen(number, side, missed=draw.random() < share, unix_ms=300 * number))
            if evidence.alarm:
                break
        alarms += evidence.alarm
    assert alarms <= 1


def test_of_a_worker_that_hangs_the_first_lost_answer_of_each_class_is_judged() -> None:
    """Of what runs at each hang one question is in Chinese, and never the first whose deadline passes."""
    evidence = Evidence(PLAN)
    for event in range(60):
        for lost in range(4):
            for side in get_args(Side):
                times = {"unix_ms": 20_000 * event + 500 * lost + 5_000, "asked_unix_ms": 20_000 * event + 1}
                common = {"worker_id": f"{side}-{event}", "language": "zh" if lost == 2 else "en", **times}
                evidence.add(
                    seen(1_000 * event + 2 * lost + (side == "control"), side, **common, missed=side == "canary")
                )
    tests = {(test.of, test.metric): test for test in evidence.tests()}
    assert tests["lang:zh", "missed"].worse == 60


@pytest.mark.parametrize(("gap_ms", "customers"), [(1_000, 26), (10, None)], ids=["one by one", "of one cause"])
@pytest.mark.parametrize("alpha", [1e-30, 1e-60])
def test_the_hard_stop_comes_after_as_many_customers_at_any_alpha(
    alpha: float, gap_ms: int, customers: int | None
) -> None:
    """No test gives an alarm at such an alpha. Customers that one crash costs are one."""
    evidence, stopped = Evidence(replace(PLAN, alpha=alpha)), None
    for number in range(40):
        for each in both(number, failed=True):
            evidence.add(replace(each, unix_ms=10_000 + gap_ms * number))
        if evidence.alarm:
            stopped = number + 1
            break
    assert stopped == customers
    assert (evidence.lost_beyond is None) == (customers is None)


@pytest.mark.parametrize(("took_ms", "is_soon"), [(20, True), (5_000, False), (None, False)])
def test_answers_that_were_asked_for_after_a_failure_are_none_of_its_victims(
    took_ms: int | None, is_soon: bool
) -> None:
    """Twenty answers a second: those that ran when a worker crashed count once, new ones that fail each count."""
    evidence = Evidence(PLAN)
    for number in range(60):
        ended = 10_000 + 50 * number
        times: dict[str, object] = {"unix_ms": ended, "asked_unix_ms": 0 if took_ms is None else ended - took_ms}
        evidence.add(seen(2 * number + 1, "control", **times))
        evidence.add(seen(2 * number, failed=True, ttft_ms=None, **times))
        if evidence.alarm:
            break
    assert (number < 10) == is_soon


def bursts(draw: random.Random) -> Callable[[], float]:
    """Return the chance of a bad answer, now small, now large on both sides."""
    state = {"bad": False}

    def chance() -> float:
        state["bad"] ^= draw.random() < 1 / 40
        return 0.9 if state["bad"] else 0.01

    return chance


def steady(chance: float) -> Callable[[random.Random], Callable[[], float]]:
    return lambda draw: lambda: chance


@pytest.mark.parametrize(
    "base", [*(steady(chance) for chance in (0.01, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)), bursts], ids=lambda _: ""
)
def test_equal_sides_are_rarely_called_worse_whatever_their_share_of_bad_answers(
    base: Callable[[random.Random], Callable[[], float]],
) -> None:
    """An answer is on either side by chance; the outage that makes it bad is on both."""
    alarms = 0
    for seed in range(40):
        draw, evidence = random.Random(seed), Evidence(PLAN)
        chance = base(draw)
        for number in range(300):
            side: Side = "canary" if draw.random() < 0.5 else "control"
            bad = draw.random() < chance()
            evidence.add(seen(number, side, missed=bad, failed=bad))
        alarms += evidence.alarm
    assert alarms <= 2


@pytest.mark.parametrize("between", [0, 1], ids=["at once", "one of the other side between each two"])
def test_a_crash_that_ends_eight_answers_of_either_side_is_one_event(between: int) -> None:
    """Ten such crashes in 3,000 answers of two equal versions are rarely evidence that one is worse."""
    alarms, sides, crashed = 0, list(get_args(Side)), ""
    for seed in range(40):
        draw, evidence, now_ms, ending = random.Random(seed), Evidence(PLAN), 0, list[Side]()
        for number in range(3_000):
            if number % 300 == 150:
                crashed, other = draw.sample(sides, 2)
                ending = [crashed, *[other] * between] * 8
            side, bad = draw.choice(sides), False
            if ending:
                side, now_ms = ending.pop(), now_ms + 50
                bad = side == crashed
            evidence.add(seen(number, side, failed=bad, unix_ms=now_ms))
            now_ms += 0 if ending else 100
        alarms += evidence.alarm
    assert alarms <= 2


def hangs(seed: int, apart_ms: int, blind_ms: int) -> list[Observation]:
    """Return the answers of equal versions with one worker each, of which one hangs after each 300 answers, eight
    running. These and what it is asked for `blind_ms` more miss their deadlines one after another; then another worker
    takes its place."""
    draw, sides, ended = random.Random(seed), get_args(Side), list[Observation]()
    now_ms, workers, until = 10_000.0, dict.fromkeys(sides, 0), dict.fromkeys(sides, 0.0)
    for number in range(3_000):
        now_ms += draw.expovariate(1 / 125)
        side = draw.choice(sides)
        if until[side] and now_ms > until[side]:
            until[side], workers[side] = 0.0, number
        worker = f"{side}-{workers[side]}"
        is_missed = bool(until[side]) or draw.random() < 0.01
        ends, common = int(now_ms + draw.uniform(500, 3_000)), {"worker_id": worker, "missed": is_missed}
        ended.append(seen(number, side, unix_ms=ends, asked_unix_ms=int(now_ms), **common))
        if number % 300 == 150:
            side, until[side] = (hung := draw.choice(sides)), now_ms + max(blind_ms, 1)
            common = {"worker_id": f"{hung}-{workers[hung]}", "missed": True, "asked_unix_ms": int(now_ms) - 1}
            ended += [
                seen(10_000 + 8 * number + each, hung, unix_ms=int(now_ms) + apart_ms * each, **common)
                for each in range(1, 9)
            ]
    return sorted(ended, key=lambda each: each.unix_ms)


@pytest.mark.parametrize(("apart_ms", "blind_ms"), [(250, 0), (500, 0), (1_000, 0), (500, 1_000)])
def test_a_worker_that_hangs_with_eight_answers_is_one_event(apart_ms: int, blind_ms: int) -> None:
    alarms = sum(evidence_of(*hangs(seed, apart_ms, blind_ms)).alarm for seed in range(40))
    assert alarms <= 2


@pytest.mark.parametrize("apart_ms", [50, 500], ids=["crashes", "hangs"])
@pytest.mark.parametrize(("sides", "stops"), [(("canary",), True), (("canary", "control"), False)])
def test_a_canary_whose_workers_fail_again_and_again_is_stopped_by_what_it_has_lost(
    sides: tuple[Side, ...], apart_ms: int, *, stops: bool
) -> None:
    """Each time eight running answers are lost, after every forty: one event each, which is little evidence."""
    evidence, number, now_ms = Evidence(PLAN), 0, 10_000
    for event in range(40):
        for _ in range(40):
            now_ms += 200
            for side in get_args(Side):
                number += 1
                times = {"unix_ms": now_ms, "asked_unix_ms": now_ms - 100, "worker_id": f"{side}-{event}"}
                evidence.add(seen(number, side, **times))
        began_ms = now_ms
        for lost in range(8):
            now_ms = began_ms + apart_ms * (lost + 1)
            for side in get_args(Side):
                number += 1
                times = {"unix_ms": now_ms, "asked_unix_ms": began_ms, "worker_id": f"{side}-{event}"}
                evidence.add(seen(number, side, failed=side in sides, **times))
        now_ms += 5_000
        if evidence.alarm:
            break
    assert evidence.alarm == stops
    assert (evidence.lost_beyond is not None) == stops


@pytest.mark.parametrize(("bad", "most"), [(1.0, 12), (0.3, 45)])
def test_a_version_that_fails_is_no_worker_that_hangs(bad: float, most: int) -> None:
    """Answers of a second, two a second of each side."""
    evidence = Evidence(PLAN)
    for number in range(300):
        is_missed = round(bad * number) > round(bad * (number - 1))
        for each in both(number, missed=is_missed):
            ended = 10_000 + 500 * number + 250 * (each.lane == "control")
            times = {"unix_ms": ended, "asked_unix_ms": ended - 1_000}
            evidence.add(replace(each, worker_id=each.lane, **times))
        if evidence.alarm:
            break
    assert number <= most


@pytest.mark.parametrize(
    "named",
    [{"bucket": "long"}, {"language": "zh"}, {"tenant": "acme"}],
    ids=["a bucket", "a language", "a tenant"],
)
@pytest.mark.parametrize("metric", ["failed", "missed"])
def test_a_canary_that_is_bad_in_one_class_only_is_found(named: dict[str, object], metric: str) -> None:
    plain = {"bucket": "short", "language": "en", "tenant": "shop"}
    evidence, bad = Evidence(PLAN), 0
    for number in range(5_000):
        rare = number % 50 == 0
        common = plain | named if rare else plain
        bad += rare
        evidence.add(seen(2 * number, **{**common, metric: rare}))
        evidence.add(seen(2 * number + 1, "control", **common))
        if evidence.alarm:
            break
    assert bad <= 25
    assert evidence.worst.of in {"long", "lang:zh", "tenant:acme"}


def test_of_many_tenants_the_most_used_are_judged_by_themselves_in_bounded_memory() -> None:
    draw, evidence = random.Random(1), Evidence(PLAN)
    for number in range(6_000):
        tenant = "big" if draw.random() < 0.02 else f"t{draw.randrange(2_000)}"
        evidence.add(seen(number, "canary" if draw.random() < 0.5 else "control", tenant=tenant))
    tenants = {each.of for each in evidence.tests() if each.of.startswith("tenant:")}
    assert {"tenant:big", "tenant:*"} <= tenants
    assert len(tenants) <= 101
    assert sum(each.alpha_share for each in evidence.tests()) <= 1


def test_conversations_are_forgotten_once_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.lifecycle.rollout.evidence._MOST_CONVERSATIONS", 100)
    evidence = evidence_of(*(seen(number) for number in range(1_000)))
    assert len(evidence._conversations) == 100


def test_the_first_answer_of_a_conversation_that_changed_sides_counts_on_neither() -> None:
    moved = seen(1, conversation="a", moved=True, missed=True, ttft_ms=900.0)
    evidence = evidence_of(moved, seen(2, conversation="a"))
    assert (evidence.answered("canary"), evidence.tallies["missed"].bad["canary"]) == (1, 0)


def test_no_alarm_comes_before_four_answers_of_the_control() -> None:
    for controls in range(4):
        evidence = evidence_of(*(seen(2 * number + 1, "control") for number in range(controls)))
        for number in range(50):
            evidence.add(seen(2 * number, failed=True, missed=True))
        assert not evidence.alarm


def test_an_answer_by_another_version_counts_as_missed_if_it_was_late_and_else_nowhere() -> None:
    censored = evidence_of(seen(1, censored=True, answered_by="cccccccccccc"))
    assert not censored.tallies["missed"].answers
    late = evidence_of(seen(1, missed=True, answered_by="cccccccccccc"))
    counted = {metric: tally.answers["canary"] for metric, tally in late.tallies.items() if tally.answers}
    assert (counted, late.answered("canary")) == ({"missed": 1}, 0)


def test_another_gateways_rating_counts_only_if_its_answer_was_counted() -> None:
    said = {"revision": "", "conversation": "a"}
    rated, wish = seen(1, rating="down", **said), seen(3, handed_over=True, **said)
    wish = replace(wish, response_id="")
    assert not evidence_of(rated, wish).tallies["rating"].answers
    known = evidence_of(seen(1, conversation="a"), rated, wish).tallies
    assert [known[metric].bad["canary"] for metric in ("rating", "handed_over")] == [1, 1]
    other = evidence_of(seen(1, "control", conversation="a"), rated, wish).tallies
    assert [other[metric].bad["canary"] for metric in ("rating", "handed_over")] == [0, 0], "it is on the other side"
