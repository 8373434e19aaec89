"""Overload, judged: what became of each request, and how soon it is as it was."""

import dataclasses

import pytest

from tests.support.overload import AFTER, BEFORE, LOADS, MOST, Asked, Ending, Overload, Phase, recovery_s

MODEL = Asked(
    due_s=10.0,
    sent_s=10.001,
    predicted=True,
    first_s=10.1,
    done_s=10.3,
    terminals=1,
    source="model",
    status="incomplete",
    reason="max_output_tokens",
)
FALLBACK = dataclasses.replace(MODEL, source="faq", status="completed", reason="stop")


def model(due_s: float, *, ttft_s: float = 0.1) -> Asked:
    return dataclasses.replace(MODEL, due_s=due_s, first_s=due_s + ttft_s, done_s=due_s + ttft_s + 0.1)


def at_once(due_s: float) -> Asked:
    return dataclasses.replace(FALLBACK, due_s=due_s, predicted=False, first_s=due_s + 0.003, done_s=due_s + 0.003)


def phase(name: str = BEFORE, *, start_s: float = 10.0, seconds: float = 10.0) -> Phase:
    return Phase(name=name, rate=10.0, start_s=start_s, seconds=seconds)


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
        (dataclasses.replace(MODEL, source=None, error="queue_full"), Ending.REFUSED),
        (dataclasses.replace(MODEL, done_s=None, source=None), Ending.MISSING),
        (dataclasses.replace(MODEL, done_s=None, source=None, error="connection_lost"), Ending.MISSING),
    ],
)
def test_what_became_of_a_request(one: Asked, ending: Ending) -> None:
    """A cut answer is no answer in time, and a lost connection no refusal."""
    assert one.ending is ending


def test_a_phase_counts_its_own_requests_and_the_answers_that_ended_in_it() -> None:
    """A queue that the phase before left behind is answered in this one; what this one leaves is not its own."""
    asked = [model(9.9), model(12.0), model(19.9), at_once(13.0), model(25.0)]
    assert len(phase().asked(asked)) == 3
    assert phase().in_time_per_s(asked) == 0.2


def test_what_is_kept_is_of_the_best_at_any_load() -> None:
    """Answers without a worker are told in their own p99; refusals are among them."""
    phases = {name: phase(name, start_s=10.0 * number) for number, (name, _) in enumerate(LOADS)}
    starts = {name: one.start_s for name, one in phases.items()}
    refused = dataclasses.replace(MODEL, due_s=starts[MOST], done_s=starts[MOST] + 0.02, error="queue_full")
    asked = [model(starts[name] + number) for name in phases for number in range(4 if name == BEFORE else 3)]
    found = Overload(phases=phases, asked=[*asked, at_once(starts[MOST]), refused], fallbacks={}, begun=1, begun_late=0)
    assert found.kept == pytest.approx(0.75)
    assert found.at_once_p99_ms() == pytest.approx(20.0)


def recovery(after: list[Asked]) -> float | None:
    before = [model(10.0 + number / 10) for number in range(100)]
    return recovery_s(phase(), phase(AFTER, start_s=20.0), [*before, *after])


def steady(start_s: float, stop_s: float, *, ttft_s: float = 0.1) -> list[Asked]:
    return [model(start_s + number / 10, ttft_s=ttft_s) for number in range(round((stop_s - start_s) * 10))]


def test_recovery_waits_for_the_share_and_for_the_first_token() -> None:
    """Four seconds of fallbacks, or of slow answers; nothing to wait for where it is as before."""
    refused = [at_once(20.05 + number / 10) for number in range(40)]
    assert recovery(steady(20.0, 30.0)) == 0.0
    assert recovery([*refused, *steady(24.0, 30.0)]) == 4.0
    assert recovery([*steady(20.0, 24.0, ttft_s=0.12), *steady(24.0, 30.0)]) == 4.0
    assert recovery([*steady(20.0, 24.0, ttft_s=0.105), *steady(24.0, 30.0)]) == 0.0


def test_one_good_second_is_no_recovery() -> None:
    """Three in a row are; and a system that never comes back, or was never there, has none."""
    slow = steady(22.0, 24.0, ttft_s=0.5)
    assert recovery([*steady(20.0, 22.0), *slow, *steady(24.0, 30.0)]) == 4.0
    assert recovery(steady(20.0, 30.0, ttft_s=0.5)) is None
    assert recovery_s(phase(), phase(AFTER, start_s=20.0), steady(20.0, 30.0)) is None
