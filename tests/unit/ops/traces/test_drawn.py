"""Traces: pure functions of their arguments, at the load that was asked for."""

from pathlib import Path

import msgspec
import pytest

from ops.lab.simulate.recorded import read_trace
from ops.traces.costs import CPU, GPU, read_costs
from ops.traces.drawn import KINDS, make_trace
from shared.errors import SettingsError
from tests.support.fakes.simulated import PLAIN, least_work, request

LEAST = least_work(num_slots=16)


@pytest.mark.parametrize("name", KINDS)
def test_requests_ascend_within_the_trace_and_say_no_more_than_they_may(name: str) -> None:
    """By arrival; lengths from 1 to their limits; the soft deadline not after the hard one."""
    trace = make_trace(name, load=2.0, seconds=60, seed=1, least=LEAST)
    arrivals = [one.arrival_ms for one in trace.requests]
    assert arrivals == sorted(arrivals)
    assert 0 <= arrivals[0] <= arrivals[-1] < 60_000
    for one in trace.requests:
        assert 1 <= one.output_tokens <= one.max_output_tokens
        assert one.prompt_tokens >= 1
        assert one.first_token_ms <= one.deadline_ms


@pytest.mark.parametrize("load", [0.5, 3.0])
@pytest.mark.parametrize("costs", [CPU, GPU], ids=lambda costs: costs.name)
def test_a_steady_trace_offers_its_load_of_work(load: float, costs: object) -> None:
    """The least machine time of all requests is `load` times the trace's length."""
    least = least_work(costs, num_slots=16)  # type: ignore[arg-type]
    trace = make_trace("bimodal", load=load, seconds=600, seed=3, least=least)
    assert sum(map(least.ms, trace.requests)) / 600_000 == pytest.approx(load, rel=0.08)


def test_bimodal_is_five_short_to_one_long() -> None:
    """With mean lengths as stated, and one deadline for all of an answer."""
    trace = make_trace("bimodal", load=5.0, seconds=600, seed=3, least=LEAST)
    short = [one for one in trace.requests if one.bucket == "short"]
    long = [one for one in trace.requests if one.bucket == "long"]
    assert len(short) / len(long) == pytest.approx(5, rel=0.1)
    assert _mean([one.prompt_tokens for one in short]) == pytest.approx(60, rel=0.05)
    assert _mean([one.output_tokens for one in long]) == pytest.approx(96, rel=0.05)
    assert {(one.bucket, one.first_token_ms, one.deadline_ms) for one in trace.requests} == {
        ("short", 3_000, 3_000),
        ("long", 6_000, 6_000),
    }


def test_a_burst_is_five_times_its_base_for_ten_seconds_of_each_minute() -> None:
    """Seconds 20 to 30, and 80 to 90."""
    trace = make_trace("burst", load=4.0, seconds=120, seed=1, least=LEAST)
    assert trace.surges == ((20_000, 30_000), (80_000, 90_000))
    within = sum(start <= one.arrival_ms < end for one in trace.requests for start, end in trace.surges)
    outside = len(trace.requests) - within
    assert (within / 20) / (outside / 100) == pytest.approx(5, rel=0.15)


def test_a_surge_is_nine_times_its_base() -> None:
    """+800 %, for three fifths of a trace that is shorter than an hour and two fifths."""
    trace = make_trace("surge", load=1.0, seconds=300, seed=1, least=LEAST)
    assert trace.surges == ((60_000, 240_000),)
    within = sum(60_000 <= one.arrival_ms < 240_000 for one in trace.requests)
    assert (within / 180) / ((len(trace.requests) - within) / 120) == pytest.approx(9, rel=0.15)


def test_a_recorded_trace_is_read_by_arrival_and_moved_to_its_load(tmp_path: Path) -> None:
    """A line a request, in any order; the first arrives at 0; a load stretches time and nothing else."""
    path = tmp_path / "shop.jsonl"
    lines = [msgspec.json.encode(request(5_000.0 + 1_000 * place, prompt=10, output=10)) for place in (1, 0, 2)]
    path.write_bytes(b"\n".join(lines) + b"\n\n")
    least = least_work(PLAIN)
    plain = read_trace(path, load=None, seed=0, least=least)
    assert (plain.name, [one.arrival_ms for one in plain.requests]) == ("shop", [0.0, 1_000.0, 2_000.0])
    moved = read_trace(path, load=2.0, seed=0, least=least)
    assert moved.span_ms == pytest.approx(3 * 200 / 2.0)  # three requests of 200 ms of work each


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds 0 requests"),
        ("not json", "line 1"),
        ('{"arrival_ms": 1}', "line 1: Object missing required field"),
        ('{"arrival_ms": -1}', "line 1"),
        ("\n\n" + msgspec.json.encode(request()).decode().replace('"short"', '"huge"'), "line 3"),
        (msgspec.json.encode(request(output=500)).decode(), "above max_output_tokens"),
        (msgspec.json.encode(request()).decode()[:-1] + ',"extra":1}', "line 1.*extra"),
    ],
)
def test_a_recorded_trace_that_is_none_is_refused_with_its_line(tmp_path: Path, content: str, said: str) -> None:
    """The message names the line and what is wrong with it."""
    path = tmp_path / "broken.jsonl"
    path.write_text(content)
    with pytest.raises(SettingsError, match=said):
        read_trace(path, load=None, seed=0, least=LEAST)


def test_requests_that_arrive_at_once_have_no_pace_to_change(tmp_path: Path) -> None:
    """As recorded they can be run, at a load they cannot."""
    path = tmp_path / "crowd.jsonl"
    path.write_bytes(msgspec.json.encode(request()) + b"\n" + msgspec.json.encode(request()))
    assert len(read_trace(path, load=None, seed=0, least=LEAST).requests) == 2
    with pytest.raises(SettingsError, match="--load"):
        read_trace(path, load=1.0, seed=0, least=LEAST)


def test_costs_are_read_from_a_workers_file(tmp_path: Path) -> None:
    """The table that a worker's calibration keeps; its laws are the virtual engine's."""
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode(GPU.table))
    costs = read_costs(str(path), "gpu")
    assert (costs.name, costs.profile) == ("costs", "gpu")
    assert costs.decode_ms(4, 100) == GPU.decode_ms(4, 100)
    assert costs.prefill_ms(64, past=10, rows=2) == GPU.prefill_ms(64, past=10, rows=2)


@pytest.mark.parametrize("content", ["", "{}", '{"decode_ms": "fast"}', "\xff"])
def test_costs_that_are_none_are_refused(tmp_path: Path, content: str) -> None:
    """In a line that names the file."""
    path = tmp_path / "costs.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(SettingsError, match=r"--costs .*costs\.json"):
        read_costs(str(path))


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)
