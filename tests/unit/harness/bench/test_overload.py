"""Overload, judged: what became of each request, phase by phase, how late, and how soon it is as it was."""

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from shared.wire.messages import Limits
from tests.bench.overload.outcome import (
    AFTER,
    BEFORE,
    LOADS,
    MOST,
    Asked,
    Ending,
    Lateness,
    Overload,
    Phase,
    PhaseRow,
    kept_share,
    lateness,
    recovery_s,
    row_of,
    summarise,
)
from tests.bench.overload.program import OverloadOptions, _num_connections, _offsets, _Reading
from tests.bench.overload.table import OTHERS, show_overload

FIRST_TOKEN_MS, DEADLINE_MS = 2_000, 4_000
MODEL = Asked(
    due_s=10.0,
    first_token_ms=FIRST_TOKEN_MS,
    deadline_ms=DEADLINE_MS,
    sent_s=10.001,
    created_s=10.002,
    predicted=True,
    first_s=10.1,
    done_s=10.3,
    terminals=1,
    source="model",
    status="incomplete",
    reason="max_output_tokens",
)
FALLBACK = dataclasses.replace(MODEL, source="faq", status="completed", reason="stop")
LIMITS = Limits(
    max_message_bytes=65_536,
    max_input_tokens=1_024,
    max_output_tokens=512,
    max_inflight=4,
    messages_per_minute=100,
    first_token_ms=FIRST_TOKEN_MS,
    deadline_ms=DEADLINE_MS,
)


def model(due_s: float, *, ttft_s: float = 0.1) -> Asked:
    return dataclasses.replace(MODEL, due_s=due_s, first_s=due_s + ttft_s, done_s=due_s + ttft_s + 0.1)


def at_once(due_s: float) -> Asked:
    return dataclasses.replace(FALLBACK, due_s=due_s, predicted=False, first_s=due_s + 0.003, done_s=due_s + 0.003)


def phase(name: str = BEFORE, *, start_s: float = 10.0, seconds: float = 10.0) -> Phase:
    return Phase(name=name, load=0.5, rate=10.0, start_s=start_s, seconds=seconds)


@pytest.mark.parametrize(
    ("one", "ending"),
    [
        (MODEL, Ending.IN_TIME),
        (dataclasses.replace(MODEL, status="completed", reason="stop"), Ending.IN_TIME),
        (dataclasses.replace(MODEL, done_s=14.001), Ending.LATE),
        (dataclasses.replace(MODEL, reason="deadline"), Ending.LATE),
        (dataclasses.replace(MODEL, status="failed", reason="internal"), Ending.LATE),
        (dataclasses.replace(FALLBACK, predicted=False), Ending.AT_ONCE),
        (dataclasses.replace(FALLBACK, source="busy", predicted=False), Ending.AT_ONCE),
        (dataclasses.replace(FALLBACK, done_s=11.9), Ending.GIVEN_UP),
        (dataclasses.replace(FALLBACK, done_s=11.999), Ending.SOFT_DEADLINE),
        (dataclasses.replace(MODEL, created_s=None, source=None, error="queue_full"), Ending.REFUSED),
        (dataclasses.replace(MODEL, done_s=None, source=None), Ending.MISSING),
        (dataclasses.replace(MODEL, done_s=None, source=None, error="connection_lost"), Ending.MISSING),
    ],
)
def test_what_became_of_a_request(one: Asked, ending: Ending) -> None:
    """A cut answer is no answer in time, and a lost connection no refusal."""
    assert one.ending is ending


def test_lateness_runs_from_when_the_request_was_due() -> None:
    """Not from when it was sent; refusals and requests without an end have none."""
    late = dataclasses.replace(MODEL, done_s=14.2)
    others = [dataclasses.replace(MODEL, error="queue_full"), dataclasses.replace(MODEL, done_s=None)]
    assert lateness([MODEL, late, *others]) == Lateness(p999=200.0, max=200.0)
    assert lateness([MODEL]).max == pytest.approx(-3_700.0)
    assert lateness(others) == Lateness()


def test_a_phase_counts_its_own_requests_and_the_answers_that_ended_in_it() -> None:
    """A queue that the phase before left behind is answered in this one; what this one leaves is not its own."""
    asked = [model(9.9), model(12.0), model(19.9), at_once(13.0), model(25.0)]
    row = row_of(phase(), asked, by_reason={"infeasible": 1}, cpu={"gateway": 0.25})
    assert row.requests == 3
    assert (row.endings["in_time"], row.endings["at_once"]) == (2, 1)
    assert row.in_time_per_s == 0.2
    assert row.at_once_ms.p99 == pytest.approx(3.0)
    assert row.ttft_ms.p50 == pytest.approx(100.0)


def test_refusals_count_as_answered_at_once_and_by_their_code() -> None:
    """Both are told without the workers."""
    refused = dataclasses.replace(MODEL, done_s=10.02, error="queue_full", source=None)
    row = row_of(phase(), [refused, at_once(11.0)], by_reason={}, cpu={})
    assert row.errors == {"queue_full": 1}
    assert row.at_once_ms.p99 == pytest.approx(20.0)


@given(st.lists(st.sampled_from([MODEL, FALLBACK, at_once(10.5), dataclasses.replace(MODEL, done_s=None)])))
def test_every_request_has_one_ending(asked: list[Asked]) -> None:
    """None is counted twice, none left out."""
    assert sum(row_of(phase(), asked, by_reason={}, cpu={}).endings.values()) == len(asked)


def recovery(after: list[Asked]) -> float | None:
    before = [model(10.0 + number / 10) for number in range(100)]
    return recovery_s(phase(), phase(AFTER, start_s=20.0), [*before, *after])


def steady(start_s: float, stop_s: float, **changes: Any) -> list[Asked]:
    return [model(start_s + number / 10, **changes) for number in range(round((stop_s - start_s) * 10))]


def test_what_is_as_before_has_recovered_at_once() -> None:
    """Nothing to wait for."""
    assert recovery(steady(20.0, 30.0)) == 0.0


def test_recovery_waits_for_the_share_and_for_the_first_token() -> None:
    """Four seconds of fallbacks, or of slow answers."""
    refused = [at_once(20.05 + number / 10) for number in range(40)]
    assert recovery([*refused, *steady(24.0, 30.0)]) == 4.0
    assert recovery([*steady(20.0, 24.0, ttft_s=0.12), *steady(24.0, 30.0)]) == 4.0
    assert recovery([*steady(20.0, 24.0, ttft_s=0.105), *steady(24.0, 30.0)]) == 0.0


def test_one_good_second_is_no_recovery() -> None:
    """Three in a row are; and a system that never comes back has none."""
    slow = steady(22.0, 24.0, ttft_s=0.5)
    assert recovery([*steady(20.0, 22.0), *slow, *steady(24.0, 30.0)]) == 4.0
    assert recovery(steady(20.0, 30.0, ttft_s=0.5)) is None


def test_without_a_model_before_there_is_no_recovery() -> None:
    """Nothing to compare with."""
    assert recovery_s(phase(), phase(AFTER, start_s=20.0), steady(20.0, 30.0)) is None


@pytest.mark.parametrize(
    ("rates", "share"), [([10.0, 20.0, 21.0], 1.0), ([10.0, 20.0, 18.0, 22.0], 0.9), ([0.0, 0.0], 1.0), ([], 1.0)]
)
def test_the_share_that_is_kept_as_load_rises(rates: list[float], share: float) -> None:
    """By the best so far, not by the one before."""
    assert kept_share(rates) == share


@given(st.floats(min_value=0.5, max_value=500), st.floats(min_value=1, max_value=20), st.integers(0, 100))
def test_arrivals_fill_their_phase_and_no_more(rate: float, seconds: float, seed: int) -> None:
    """In order, and none beyond its end."""
    offsets = list(_offsets(Phase(name="3×", load=3, rate=rate, start_s=0, seconds=seconds), seed))
    assert offsets == sorted(offsets)
    assert all(0 <= offset < seconds for offset in offsets)
    assert len(offsets) < 2 * rate * seconds + 50


def test_so_many_connections_that_no_limit_is_met() -> None:
    """At 250 requests a second: four unanswered for four seconds each, and a hundred messages a minute."""
    assert _num_connections(250.0, LIMITS) >= 250
    patient = msgspec.structs.replace(LIMITS, max_inflight=100)
    assert _num_connections(250.0, patient) >= 150


def test_counters_are_told_by_phase() -> None:
    """What was counted before it is not its own; CPU is in cores, and a difference of samples never negative."""
    before = _Reading(10.0, {"gateway": 1.0, OTHERS: 1.01}, {"worker": 3, "infeasible": 2})
    after = _Reading(20.0, {"gateway": 3.5, OTHERS: 1.0}, {"worker": 5, "infeasible": 2, "overload": 1})
    assert after.fallbacks_since(before) == {"overload": 1, "worker": 2}
    assert after.cpu_since(before) == {"gateway": 0.25, OTHERS: 0.0}


def overload(**changes: Any) -> Overload:
    phases = [
        Phase(name=name, load=load, rate=10 * load, start_s=10.0 * place, seconds=10.0)
        for place, (name, load) in enumerate(LOADS)
    ]
    asked = [model(number / 10) for number in range(600)]
    rows = [row_of(one, asked, by_reason={"infeasible": 2}, cpu={"gateway": 0.5, OTHERS: 0.1}) for one in phases]
    run = summarise(
        rows,
        phases,
        asked,
        capacity_per_s=20.0,
        connections=100,
        first_token_ms=FIRST_TOKEN_MS,
        deadline_ms=DEADLINE_MS,
        begun=600,
        begun_late=6,
    )
    return msgspec.structs.replace(run, **changes)


def test_the_verdicts_stand_beside_what_was_measured() -> None:
    """Each target has its line."""
    said = show_overload(overload(kept_share=0.9, missing=1, recovery_s=3.0, late_ms=Lateness(p999=10.0, max=260.0)))
    assert "capacity: 20.00 model answers/s" in said
    assert "latest, ms: 260.00 (≤ 250.00 missed)" in said
    assert "without an end: 1 (≤ 0 missed)" in said
    assert "more than one end: 0 (≤ 0 met)" in said
    assert "after the first token was due: 6 of 600 (≤ 0.01 met)" in said
    assert "by the best at less load: 0.9 (≥ 0.95 missed)" in said
    assert "until as before: 3.00 (≤ 10.00 met)" in said
    assert f"at {MOST}, answered by the fallback at once or refused (0 of 0 not by the model), p99 ms: –" in said


def test_no_recovery_is_a_miss() -> None:
    """And not one that was not measured."""
    assert f"not in {AFTER!r} (≤ 10.00 missed)" in show_overload(overload(recovery_s=None))


def test_a_busy_machine_is_told() -> None:
    """By the cores that went to processes which are no part of the run."""
    run = overload()
    busy = [msgspec.structs.replace(row, cpu={"gateway": 0.5, OTHERS: 0.4}) for row in run.phases]
    assert "NOT A QUIET MACHINE" not in show_overload(run)
    assert "NOT A QUIET MACHINE" in show_overload(overload(phases=busy))


def test_what_is_said_twice_is_counted() -> None:
    """A second terminal event of one request."""
    twice = dataclasses.replace(MODEL, terminals=2)
    assert row_of(phase(), [MODEL, twice], by_reason={}, cpu={}).repeated == 1


def test_rows_are_written_with_stable_keys() -> None:
    """What scripts read of `--json`."""
    document = msgspec.to_builtins(overload())
    assert list(document) == list(Overload.__struct_fields__) == [
        "capacity_per_s", "connections", "first_token_ms", "deadline_ms", "phases", "recovery_s", "kept_share",
        "late_ms", "missing", "repeated", "begun", "begun_late",
    ]  # fmt: skip
    assert list(document["phases"][0]) == list(PhaseRow.__struct_fields__) == [
        "phase", "load", "rate", "seconds", "requests", "endings", "errors", "repeated", "in_time_per_s", "ttft_ms",
        "at_once_ms", "given_up_ms", "after_soft_ms", "late_ms", "send_lag_ms", "by_reason", "cpu",
    ]  # fmt: skip
    assert list(document["phases"][0]["endings"]) == [
        "in_time", "late", "at_once", "given_up", "soft_deadline", "refused", "missing",
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e9, float("nan")])
def test_a_phase_of_no_length_is_refused(seconds: float) -> None:
    """The message has the option and what was given."""
    with pytest.raises(SettingsError, match="--seconds"):
        OverloadOptions(seconds=seconds, seed=1, engine="fake", broker="embedded", json_path=None).check()
