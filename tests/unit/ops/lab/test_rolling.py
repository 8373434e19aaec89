"""Forecasts are judged by the actual demand, each from the past alone."""

from pathlib import Path

import msgspec
import pytest

from ops.lab.forecast.commands import ForecastOptions, forecast
from ops.lab.forecast.rolling import ForecastRow, rows_of
from ops.scaling.forecast.demand_forecast import Forecast
from ops.traces.recorded import LONG_ENOUGH, NAMES, Series, read_series
from shared.errors import SettingsError

RAMP = Series(name="ramp", bin_s=600, values=tuple(float(value) for value in range(100, 240)))


class Headroom:
    """Expects the last value, and a fixed share more at most."""

    def __init__(self, share: float) -> None:
        self.share = share

    def observe(self, value: float) -> None:
        self.last = value

    def upper(self, steps: int, quantile: float) -> float:
        return self.last * (1 + self.share)


def row(forecaster: Forecast, series: Series = RAMP, horizon_min: float = 10) -> ForecastRow:
    (found,) = rows_of(series, forecaster, [horizon_min], 0.9, lambda: 0.0)
    return found


def test_a_bin_is_forecast_from_those_before_it() -> None:
    """The series rises by 1 a bin, so the last known value is too low by the number of bins ahead. It would be right if
    the forecast saw the bin itself."""
    total = sum(range(180, 240))
    assert row(Headroom(0.0)).under == pytest.approx(60 / total)
    assert row(Headroom(0.0), horizon_min=20).under == pytest.approx(120 / total)
    assert row(Headroom(0.0)).coverage == 0.0


def test_a_flat_headroom_is_worth_itself() -> None:
    series = read_series("m-large")
    assert row(Headroom(0.3), series).of_persistence == pytest.approx(1.0, abs=0.01)


def test_what_was_not_recorded_is_not_judged() -> None:
    gap = msgspec.structs.replace(RAMP, values=(*RAMP.values[:-1], None))
    assert row(Headroom(0.0), gap).under == pytest.approx(59 / sum(range(180, 239)))


@pytest.mark.parametrize("horizon_min", [0, 5, 15, float("nan"), float("inf"), 1_000])
def test_a_horizon_is_a_whole_number_of_bins(horizon_min: float) -> None:
    with pytest.raises(SettingsError, match=r"--horizon-min .*: ramp has 140 bins of 10 minutes"):
        row(Headroom(0.0), horizon_min=horizon_min)


def test_each_kept_series_says_where_it_is_from() -> None:
    series = [read_series(name) for name in NAMES]
    assert {each.licence for each in series} == {"Apache-2.0", "CC-BY-4.0", "MIT"}
    assert all(each.source.startswith("https://github.com/") and each.title for each in series)
    assert [each.values.count(None) for each in series[:3]] == [37, 102, 0]


def test_the_command_prints_a_row_a_trace_and_horizon(capsys: pytest.CaptureFixture[str]) -> None:
    forecast(ForecastOptions(trace=["elb"], horizon_min=[10.0, 30.0]))
    out = capsys.readouterr().out
    assert (out.count("| elb | 10 |"), out.count("| elb | 30 |")) == (1, 1)
    coverage = float(out.split("| elb | 10 |")[1].split("|")[0])
    assert 0.88 <= coverage <= 0.92


def test_a_series_that_is_too_short_is_named() -> None:
    with pytest.raises(SettingsError, match="--trace azure-conv: nothing to judge 1 minutes ahead; record for longer"):
        forecast(ForecastOptions(trace=["azure-conv"], horizon_min=[1.0]))
    assert set(NAMES) - set(LONG_ENOUGH) == {"azure-conv", "azure-code"}


@pytest.mark.parametrize(
    ("trace", "said"),
    [("nowhere", "neither a file nor one of m-small"), ("pyproject.toml", 'the file must look like {"name": "shop"')],
)
def test_a_wrong_trace_is_named(trace: str, said: str) -> None:
    with pytest.raises(SettingsError, match=f"--trace {trace}: .*{said}"):
        read_series(trace)


def test_a_trace_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_bytes(b'{"name": "\xff", "bin_s": 600, "values": [1, 2]}')
    with pytest.raises(SettingsError, match=r"shop\.json: .*can't decode"):
        read_series(str(tmp_path / "shop.json"))
