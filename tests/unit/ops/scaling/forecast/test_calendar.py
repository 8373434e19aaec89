"""The calendar of promotions: at least what it says is expected, and a wrong line is named."""

from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scaling.forecast.calendar import Calendar, Promotion
from shared.errors import SettingsError

BEGIN = datetime(2026, 11, 11, tzinfo=UTC)
BEGIN_MS = BEGIN.timestamp() * 1_000
MINUTE_MS = 60_000.0


def promotion(*, times: float | None = None, work: float | None = None, ramp_min: float = 0.0) -> Promotion:
    end = BEGIN + timedelta(hours=2)
    return Promotion(name="singles day", begins=BEGIN, ends=end, times=times, work=work, ramp_min=ramp_min)


def test_a_promotion_is_expected_before_it_begins_by_the_horizon() -> None:
    calendar = Calendar([promotion(work=12.0)])
    assert calendar.at_least(BEGIN_MS - 20 * MINUTE_MS, 10 * MINUTE_MS, 3.0) == 0.0
    assert calendar.at_least(BEGIN_MS - 10 * MINUTE_MS, 10 * MINUTE_MS, 3.0) == 12.0
    assert calendar.at_least(BEGIN_MS + 130 * MINUTE_MS, 0.0, 3.0) == 0.0


def test_times_multiplies_what_was_expected_before_not_what_the_promotion_itself_brings() -> None:
    calendar = Calendar([promotion(times=3.0)])
    calendar.at_least(BEGIN_MS - MINUTE_MS, 0.0, 2.0)
    assert calendar.at_least(BEGIN_MS + 30 * MINUTE_MS, 0.0, 6.0) == 6.0


def test_on_its_ramp_a_promotion_grows_and_falls() -> None:
    calendar = Calendar([promotion(times=3.0, ramp_min=20.0)])
    shares = [calendar.at_least(BEGIN_MS + minute * MINUTE_MS, 0.0, 2.0) for minute in (-25, -10, 0, 120, 130, 141)]
    assert shares == pytest.approx([0.0, 4.0, 6.0, 6.0, 4.0, 0.0])


@given(st.floats(-300, 300), st.floats(0, 60), st.floats(0, 100), st.floats(1, 50), st.floats(0, 60))
def test_it_never_expects_less_than_the_whole_while_a_promotion_lasts(
    minute: float, horizon: float, base: float, times: float, ramp: float
) -> None:
    calendar = Calendar([promotion(times=times, ramp_min=ramp), promotion(work=7.0)])
    least = calendar.at_least(BEGIN_MS + minute * MINUTE_MS, horizon * MINUTE_MS, base)
    if 0 <= minute + horizon <= 120:
        assert least >= max(7.0, times * base) * (1 - 1e-9)
    else:
        assert 0.0 <= least <= max(7.0, times * base)


def test_what_nobody_knows_multiplies_to_nothing() -> None:
    assert Calendar([promotion(times=3.0)]).at_least(BEGIN_MS, 0.0, nan) == 0.0


GOOD = """
[[promotion]]
name = "breakfast"
from = 2026-11-11T06:00:00+08:00
to = 2026-11-11T08:00:00+08:00
work = 4
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "calendar.toml").write_text(GOOD)
    (read,) = Calendar.read(tmp_path / "calendar.toml").promotions
    assert (read.name, read.work, read.begins.timestamp()) == ("breakfast", 4.0, 1_794_348_000.0)


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        ("work = 4", "work = -4", "line 2: breakfast: Expected `float` > 0.0 - at `$.work`; it has name ="),
        ("work = 4", "times = 2\nwork = 4", "line 2: breakfast: say `times` or `work`; one of them"),
        ("work = 4", "", "line 2: breakfast: say `times` or `work`; one of them"),
        ("work = 4", "wrok = 4", "line 2: breakfast: Object contains unknown field `wrok`"),
        ("T08:00:00+08:00", "T05:00:00+08:00", "not after its begin; mend `to`"),
        ("T08:00:00+08:00", "T08:00:00", "line 2: breakfast: Expected `datetime` with a timezone component"),
        ('name = "breakfast"', "name =", "line 3"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(tmp_path: Path, line: str, wrong: str, said: str) -> None:
    path = tmp_path / "calendar.toml"
    path.write_text(GOOD.replace(line, wrong))
    with pytest.raises(SettingsError) as raised:
        Calendar.read(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--calendar .*none\.toml: .*No such file"):
        Calendar.read(tmp_path / "none.toml")
