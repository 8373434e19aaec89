"""Two results side by side: what is a difference, what is chance, and what is no result."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ops.lab.load.compare import bench_compare, read_result
from ops.lab.load.figures.comparison import compared, worst
from ops.lab.load.figures.report import Samples
from ops.lab.load.options import CompareOptions
from ops.measure.bootstrap import mean_of, quantile_of, ratio
from shared.errors import SettingsError

MACHINE = {"cpu": "c", "cores": 2, "engine": "fake", "broker": "embedded"}


def latencies(seed: int, count: int = 600, slower: float = 1.0) -> list[float]:
    """Return log-normal latencies in ms. Each depends on the one before it, as in a queue."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, 0.25, count)
    level = np.zeros(count)
    for at in range(1, count):
        level[at] = 0.6 * level[at - 1] + noise[at]
    return [slower * 100 * float(value) for value in np.exp(level)]


def samples(seed: int, *, slower: float = 1.0, in_time: float = 0.95) -> Samples:
    ttft = latencies(seed, slower=slower)
    good = np.random.default_rng(seed + 1).random(len(ttft)) < in_time
    return Samples(ttft_ms=ttft, e2e_ms=[5 * ms for ms in ttft], in_time=[int(one) for one in good])


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6))
def test_a_result_is_no_different_from_itself(seed: int) -> None:
    rows = compared(samples(seed), samples(seed), tolerance=0.0)
    assert worst(rows) == "no difference"
    assert [row.ratio.value for row in rows if row.ratio] == [1.0] * 5


def test_chance_is_seldom_taken_for_a_difference() -> None:
    """Pairs of runs that differ by chance alone: of fourteen at most two are called different, with no
    tolerance at all."""
    verdicts = [worst(compared(samples(2 * n), samples(2 * n + 1), tolerance=0.0)) for n in range(14)]
    assert sum(verdict != "no difference" for verdict in verdicts) <= 2


@pytest.mark.parametrize(("slower", "verdict"), [(1.4, "regression"), (0.7, "improvement")])
def test_what_is_slower_is_a_regression_and_what_is_faster_an_improvement(slower: float, verdict: str) -> None:
    rows = compared(samples(1), samples(2, slower=slower), tolerance=0.05)
    assert worst(rows) == verdict
    assert {row.figure: row.verdict for row in rows}["TTFT p50 ms"] == verdict


def test_fewer_in_time_are_a_regression_whatever_the_latency() -> None:
    rows = compared(samples(1), samples(2, slower=0.7, in_time=0.7), tolerance=0.05)
    assert {row.figure: row.verdict for row in rows}["in time, share"] == "regression"
    assert worst(rows) == "regression"


def test_a_difference_within_the_tolerance_is_none() -> None:
    rows = compared(samples(1), samples(1, slower=1.04), tolerance=0.05)
    assert worst(rows) == "no difference"


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10))
def test_the_interval_holds_the_ratio_and_does_not_depend_on_the_unit(seed: int, unit: float) -> None:
    a, b = latencies(seed, 200), latencies(seed + 1, 300)
    for statistic in (quantile_of(0.5), quantile_of(0.99), mean_of):
        found = ratio(a, b, statistic)
        other = ratio([unit * one for one in a], [unit * one for one in b], statistic)
        assert found is not None
        assert other is not None
        assert found.low <= found.value <= found.high
        assert (other.value, other.low, other.high) == pytest.approx((found.value, found.low, found.high))


def write(path: Path, of: Samples, **machine: Any) -> Path:
    path.write_bytes(msgspec.json.encode({"samples": of, "environment": {**MACHINE, **machine}, "more": 1}))
    return path


def options(first: Path, second: Path, html: Path | None = None) -> CompareOptions:
    return CompareOptions(first=first, second=second, tolerance=0.05, html_path=html)


def test_the_exit_status_tells_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write(tmp_path / "a.json", samples(1))
    after = write(tmp_path / "b.json", samples(2, slower=1.5), cores=4)
    page = tmp_path / "report.html"
    assert bench_compare(options(before, after, page), "replyline bench compare", Console(stderr=True)) == 1
    told = capsys.readouterr()
    assert "| TTFT p50 ms |" in told.out
    assert told.out.splitlines()[-1].startswith("regression (600 and 600 requests")
    assert told.err == f"different conditions: cores 2, then 4\nreport: {page}\n"
    assert "Regression: b.json after a.json" in page.read_text()
    assert "cores 2, then 4" in page.read_text()
    assert bench_compare(options(after, before), "replyline bench compare", Console(quiet=True)) == 0


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"samples": 1}', b"\xff"])
def test_what_is_no_result_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"a\.json: is not a comparable result .* make one: ") as refused:
        read_result(path)
    assert "\n" not in str(refused.value)
