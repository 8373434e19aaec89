"""What is expected is learned minute by minute, also by a new leader from what the last one wrote."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from ops.scaling.autoscale.expectation import FORECAST_FROM_MS, MINUTE_MS, Expectation
from ops.scaling.forecast.calendar import Calendar, Promotion
from shared.wire.scaling import ScalingRecord

LONG_MS = FORECAST_FROM_MS


@dataclass
class Twice:
    """Predicts twice the last value, and records its input."""

    told: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def observe(self, value: float) -> None:
        self.told.append(value)

    def upper(self, steps: int, quantile: float) -> float:
        assert quantile == 0.9
        self.steps.append(steps)
        return 2 * self.told[-1]


def record(minute: int, asked: float | None, kind: str = "minute") -> ScalingRecord:
    at = minute * MINUTE_MS + 500
    return ScalingRecord(pool="main", unix_ms=at, kind=kind, wanted=1, found=1, reason="", asked=asked)  # type: ignore[arg-type]


def test_a_minute_counts_once_and_one_that_nobody_wrote_is_unknown() -> None:
    """Two leaders may have written the same one."""
    expectation = Expectation(Twice(), Calendar())
    expectation.replay([record(10, 1.0), record(10, 9.0, "change"), record(13, None), record(14, 3.0)], LONG_MS)
    told = expectation.forecast.told  # type: ignore[attr-defined]
    assert [None if math.isnan(value) else value for value in told] == [1.0, None, None, None, 3.0]
    assert expectation.expected == 6.0
    assert not expectation.end_minute(14.9 * MINUTE_MS, 8.0, LONG_MS)
    assert expectation.end_minute(15 * MINUTE_MS, 4.0, LONG_MS)
    assert expectation.expected == 8.0


def test_it_looks_as_far_ahead_as_a_worker_takes_to_serve() -> None:
    expectation = Expectation(Twice(), Calendar())
    for minute, horizon_s in enumerate((300, 301, 600)):
        expectation.end_minute(minute * MINUTE_MS, 1.0, horizon_s * 1_000)
    assert expectation.forecast.steps == [5, 6, 10]  # type: ignore[attr-defined]


@pytest.mark.parametrize("cold_start_s", [0, 5, 120, 299])
def test_a_worker_that_starts_soon_needs_no_forecast(cold_start_s: float) -> None:
    """The calendar counts all the same, and multiplies what was asked before the promotion."""
    begins, ends = (datetime.fromtimestamp(minute * 60, UTC) for minute in (10, 20))
    expectation = Expectation(Twice(), Calendar([Promotion(name="sale", begins=begins, ends=ends, times=3.0)]))
    expectation.end_minute(1 * MINUTE_MS, 2.0, cold_start_s * 1_000)
    assert expectation.expected is None
    expectation.end_minute(11 * MINUTE_MS, 2.5, cold_start_s * 1_000)
    assert expectation.expected == pytest.approx(6.0)
    assert expectation.forecast.steps == []  # type: ignore[attr-defined]


def test_nothing_is_expected_before_anything_is_known_but_for_the_calendar() -> None:
    assert Expectation(Twice(), Calendar()).expected is None
    expectation = Expectation(Twice(), Calendar())
    expectation.end_minute(0, None, 0.0)
    assert expectation.expected is None
    begins, ends = (datetime.fromtimestamp(minute * 60, UTC) for minute in (10, 20))
    known = Expectation(Twice(), Calendar([Promotion(name="sale", begins=begins, ends=ends, work=12.5)]))
    known.end_minute(9 * MINUTE_MS, None, 2 * MINUTE_MS)
    assert known.expected == 12.5


@pytest.mark.parametrize("set_back", [60, 24 * 60])
def test_minutes_go_on_after_a_clock_was_set_back(set_back: int) -> None:
    expectation = Expectation(Twice(), Calendar())
    for minute in (10_000, 10_001):
        assert expectation.end_minute(minute * MINUTE_MS, 1.0, 0.0)
    set_to = 10_002 - set_back
    assert expectation.end_minute(set_to * MINUTE_MS, 1.0, 0.0)
    assert not expectation.end_minute(set_to * MINUTE_MS + 1.0, 1.0, 0.0)
    assert expectation.end_minute((set_to + 1) * MINUTE_MS, 1.0, 0.0)
