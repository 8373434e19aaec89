"""Keep by value for cost under the floors, serve the kept by deadline, give up the rest immediately."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders.worker import LinearCosts
from tests.support.fakes.scheduler_model import make_sequence
from tests.unit.examples import examples
from workers.schedule.goodput.books import Prices
from workers.schedule.goodput.forecast import Forecast
from workers.schedule.goodput.goodput import Goodput
from workers.schedule.goodput.plan import Candidates
from workers.schedule.lengths import OutputLengths
from workers.schedule.policy import RunningLoad
from workers.schedule.scheduler import Scheduler, SchedulerLimits
from workers.schedule.sequence import Phase, Sequence

# A prompt token takes a millisecond, a decode step ten, of however many rows.
MACHINE = LinearCosts(1.0, 10.0)


def goodput(num_slots: int = 1) -> Goodput:
    return Goodput(MACHINE, OutputLengths(), num_slots=num_slots)


def asked(name: str, *, deadline: int, output: int = 10, prompt: int = 10, **fields: object) -> Sequence:
    """Its length is known: `prompt` milliseconds and `output` steps of ten."""
    sequence = make_sequence(name, prompt=prompt, output=output, soft=deadline, hard=deadline, **fields)  # type: ignore[arg-type]
    sequence.output_hint = sequence.expected_output_tokens = output
    return sequence


def add(policy: Goodput, sequences: Iterable[Sequence], now: float = 0.0) -> None:
    for sequence in sequences:
        policy.add(sequence, now)


def forecast(num_slots: int = 1) -> Forecast:
    return Forecast(MACHINE, OutputLengths(), num_slots=num_slots)


def running(name: str, *, output: int, written: int = 1) -> Sequence:
    sequence = asked(name, deadline=60_000, output=output)
    sequence.enter(Phase.PREFILL)
    sequence.enter(Phase.DECODE)
    sequence.computed = len(sequence.prompt_ids) + written - 1
    sequence.output_ids += [7] * written
    return sequence


def names(sequences: Iterable[Sequence]) -> list[str]:
    return sorted(sequence.request_id for sequence in sequences)


def test_a_prompt_of_which_nothing_is_kept_takes_so_much_longer_than_the_mean() -> None:
    lately = forecast()
    assert lately.mean_cold_ms == 0.0
    for name, kept in (("r1", 0), ("r2", 30)):
        sequence = asked(name, deadline=60_000, prompt=40)
        sequence.computed = kept
        lately.admitted(lately.item(sequence))
    assert lately.mean_cold_ms == pytest.approx(40.0 - lately.mean_prefill_ms)
    assert lately.mean_cold_ms > 0


@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_where_not_all_can_be_met_the_dearest_makes_way(weight: float) -> None:
    """One that takes as long as four others, unless it is worth more."""
    policy, dear = goodput(), asked("s1", deadline=600, output=40, prompt=40)
    dear.weight = weight
    add(policy, [dear, *[asked(f"s{n}", deadline=610 + n, output=8, prompt=8) for n in range(2, 6)]])
    assert ("s1" in names(policy.give_up(0, RunningLoad(1)))) == (weight == 1.0)


@pytest.mark.parametrize(("num_slots", "urgent", "taken"), [(4, 50_000, "s1"), (1, 500, "s2")])
def test_the_first_to_come_is_served_until_slots_are_scarce_then_the_earliest_latest_start(
    num_slots: int, urgent: int, taken: str
) -> None:
    policy = goodput(num_slots)
    add(policy, [asked("s1", deadline=urgent + 400), asked("s2", deadline=urgent)])
    assert policy.give_up(0, RunningLoad(num_slots)) == []
    assert policy.admit(0, RunningLoad(0)) is None
    assert names([policy.admit(0, RunningLoad(num_slots))]) == [taken]  # type: ignore[list-item]


def test_a_class_keeps_half_of_its_share_however_dear_it_is() -> None:
    """Short ones alone would fill the machine four times over; half of the work offered is in long ones."""
    policy = goodput()
    served = {"short": 0.0, "long": 0.0}
    now = 0.0
    for number in range(1, 400):
        short = [asked(f"s{number * 10 + n}", deadline=int(now) + 1_000, output=8, prompt=8) for n in range(4)]
        long = asked(f"s{number * 10 + 5}", deadline=int(now) + 2_000, output=32, prompt=32, bucket="long")
        add(policy, [*short, long], now)
        policy.give_up(now, RunningLoad(1))
        taken = policy.admit(now, RunningLoad(1))
        if taken is None:
            now += 50
            continue
        work = len(taken.prompt_ids) + 10 * taken.max_output_tokens
        served[taken.bucket] += work
        now += work
    assert served["long"] >= 0.22 * sum(served.values())


def test_one_of_a_class_below_its_floor_takes_the_place_of_several() -> None:
    """Of all that was served none was long."""
    policy, now = goodput(), 0.0
    for number in range(1, 20):
        add(policy, [asked(f"s{number}", deadline=60_000, output=8, prompt=8)], now)
        assert policy.admit(now, RunningLoad(1)) is not None
        now += 88
    add(policy, [asked(f"s{n}", deadline=int(now) + 400, output=8, prompt=8) for n in range(20, 24)], now)
    add(policy, [asked("s24", deadline=int(now) + 1_070, output=60, prompt=60, bucket="long")], now)
    lost = names(policy.give_up(now, RunningLoad(1)))
    assert len(lost) == 2
    assert "s24" not in lost


def test_a_clock_that_is_put_back_stops_no_plan() -> None:
    policy, now = goodput(), 4_000_000.0
    add(policy, [asked("s1", deadline=int(now) + 60_000)], now)
    assert policy.give_up(now, RunningLoad(1)) == []
    now -= 3_600_000.0
    add(policy, [asked("s2", deadline=int(now) + 80)], now)
    assert names(policy.give_up(now, RunningLoad(1))) == ["s2"]


def test_a_flooding_tenant_is_the_first_to_lose() -> None:
    policy = goodput()
    add(policy, [asked(f"s{n}", deadline=1_000, tenant="flood") for n in range(1, 40)])
    add(policy, [asked(f"s{n}", deadline=1_000, tenant="quiet") for n in range(40, 43)])
    lost = policy.give_up(0, RunningLoad(1))
    assert {sequence.session.tenant for sequence in lost} == {"flood"}


def test_while_slots_stand_idle_a_doubtful_request_is_tried() -> None:
    """Half of its possible answer does not fit its deadline, a twentieth does; it displaces no other request."""
    policy = goodput(num_slots=4)
    sequence = make_sequence("s1", output=100, soft=600, hard=600)
    sequence.expected_output_tokens = 80
    policy.add(sequence, 0)
    assert policy.give_up(0, RunningLoad(4)) == []
    assert policy.admit(0, RunningLoad(4)) is sequence


def test_an_idle_machine_tries_a_late_request_once_a_second() -> None:
    """Only calls correct the predictions: a worker slowed down for a moment would give up every request for ever."""
    policy, busy = goodput(4), [running("r1", output=500)]

    def is_tried(now: int, rows: list[Sequence]) -> bool:
        late, load = asked(f"s{now}", deadline=now + 50, prompt=400), RunningLoad(4, rows)
        add(policy, [late], now)
        if policy.give_up(now, load):
            return False
        assert policy.admit(now, load) is late
        return True

    times = (0, 500, 999, 1_000, 1_500, 5_000)
    assert [is_tried(now, []) for now in times] == [True, False, False, True, False, True]
    assert not is_tried(9_000, busy)


@pytest.mark.parametrize("num_late", [2, 3, 5])
def test_an_idle_machine_tries_one_of_several_late_requests(num_late: int) -> None:
    policy, idle = goodput(4), RunningLoad(4, [])
    late = [asked(f"s{number}", deadline=50, prompt=400) for number in range(num_late)]
    add(policy, late, 0)
    assert len(policy.give_up(0, idle)) == num_late - 1
    assert policy.admit(0, idle) in late


def test_one_that_is_tried_and_leaves_before_it_has_a_slot_leaves_nothing_behind() -> None:
    """It was taken, and waits for tokens that another holds."""
    policy = goodput(num_slots=4)
    limits = SchedulerLimits(
        num_slots=4, prefill_chunk_tokens=64, max_prefill_rows=4, stop_token_ids=frozenset(), max_running_tokens=60
    )
    scheduler = Scheduler(limits, policy, costs=MACHINE, lengths=OutputLengths())
    scheduler.add(asked("s1", deadline=60_000, output=40), 0)
    assert scheduler.next_step(0) is not None
    scheduler.add(make_sequence("s2", output=100, soft=150, hard=150), 0)
    assert scheduler.sweep(0) == []
    scheduler.next_step(0)
    assert (scheduler.num_waiting, policy._tried) == (1, {"s2"})
    scheduler.cancel("s2")
    assert names([finished.sequence for finished in scheduler.sweep(1)]) == ["s2"]
    assert policy._tried == set()


def test_one_that_cannot_end_in_time_loses_its_slot_only_to_one_that_waits() -> None:
    policy = goodput()
    running = asked("s1", deadline=500, output=40)
    running.enter(Phase.PREFILL)
    running.enter(Phase.DECODE)
    running.output_ids.append(7)
    load = RunningLoad(1, [running])
    assert policy.give_up(200, load) == []
    add(policy, [asked("s2", deadline=1_000)], 200)
    assert names(policy.give_up(200, load)) == ["s1"]


@settings(max_examples=examples(200))
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(10, 3_000), st.integers(0, 200)), max_size=30
    ),
    num_slots=st.integers(1, 4),
)
def test_everybody_is_served_or_given_up_and_none_after_its_deadline(
    requests: list[tuple[int, int, int, int]], num_slots: int
) -> None:
    """Bounded starvation: no request waits past its deadline to be served or given up."""
    policy, now, left = goodput(num_slots), 0.0, set[str]()
    for number, (prompt, output, within, gap) in enumerate(requests):
        sequence = asked(f"s{number}", deadline=int(now) + within, prompt=prompt, output=output)
        policy.add(sequence, now)
        left.add(sequence.request_id)
        for given_up in policy.give_up(now, RunningLoad(num_slots)):
            left.remove(given_up.request_id)
        taken = policy.admit(now, RunningLoad(num_slots))
        if taken is not None:
            assert taken.deadline.deadline_unix_ms >= now
            left.remove(taken.request_id)
        now += gap
    now += 10_000
    while policy.admit(now, RunningLoad(num_slots)) is not None:
        pytest.fail("a request is served after its deadline")
    for given_up in policy.give_up(now, RunningLoad(num_slots)):
        left.remove(given_up.request_id)
    assert not left


# --- what a plan is made of

KINDS = st.tuples(
    st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from("ab"), st.booleans()
)


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=30),
    excess=st.dictionaries(st.sampled_from("ab"), st.sampled_from([1.5, 3.0])),
    floors=st.sets(st.sampled_from(["short", "long"])),
)
def test_the_dearest_is_the_one_that_a_look_at_all_finds(
    kinds: list[tuple[int, int, float, str, bool]], excess: dict[str, float], floors: set[str]
) -> None:
    """Among equals it is the first, across classes and tenants; this repeats until no item of that cost remains."""
    prices, items, forecasts = Prices(floors, excess), [], forecast()
    for number, (prompt, output, weight, tenant, is_long) in enumerate(kinds):
        bucket = "long" if is_long else "short"
        sequence = asked(f"s{number}", deadline=1_000, prompt=prompt, output=output, tenant=tenant, bucket=bucket)
        sequence.weight = weight
        items.append(forecasts.item(sequence))
    *left, last = sorted(items)
    candidates = Candidates(left[::2])
    for item in left[1::2]:
        candidates.add(item)
    while True:
        every = [
            (
                prices.price(item.sequence.bucket, item.sequence.session.tenant, item.cost_ms / item.sequence.weight),
                item,
            )
            for item in [*left, last]
        ]
        dearest = max(every, key=lambda priced: priced[0])[1]
        found = candidates.pop_dearer(last, prices)
        if dearest is last:
            assert found is None
            return
        assert found is dearest
        left.remove(dearest)


def test_a_prompt_that_is_being_computed_delays_the_next_and_its_own_end() -> None:
    """Thirty tokens of forty are still to be computed, a millisecond each."""
    sequence = asked("s1", deadline=60_000, prompt=40, output=5)
    sequence.enter(Phase.PREFILL)
    sequence.computed = 10
    free, prompts = forecast(2).releases(100.0, RunningLoad(2, [sequence]), 10.0, num_starts=2)
    assert sorted(free) == [100.0, 180.0]
    assert prompts == 130.0


@given(rows=st.lists(st.tuples(st.integers(2, 30), st.integers(1, 30)), max_size=4), num_starts=st.integers(0, 8))
def test_whose_end_matters_to_nobody_is_left_out(rows: list[tuple[int, int]], num_starts: int) -> None:
    """As many starts come at the same times as from all slots."""
    load = RunningLoad(
        6, [running(f"s{n}", output=output, written=written) for n, (output, written) in enumerate(rows)]
    )
    every, prompts = forecast(6).releases(0.0, load, 10.0, num_starts=100)
    asked_for, same = forecast(6).releases(0.0, load, 10.0, num_starts=num_starts)
    assert sorted(asked_for)[:num_starts] == sorted(every)[:num_starts]
    assert same == prompts
