"""What a bench of the deciding modules says of a fleet, and when streams go on whose gateway has died."""

from random import Random

import pytest

from tests.bench.fleet.failover import Costs, Streams, Way, _draw, _Log, go_on
from tests.bench.fleet.scale import _admission, _cancels, _join

COSTS = Costs(client_s=1 / 1_500, pass_s=3e-6, tell_s=38e-6)
STREAMS = Streams(number=2_000, replies_per_s=15_000.0)


def test_a_cancel_has_one_reader_and_none_is_forgotten_at_a_thousand_a_second() -> None:
    found = _cancels(workers=10, partitions=50)
    assert (found.readers, found.remembered, found.forgotten) == (1, 120_000, 0)


def test_a_worker_that_joins_takes_its_share_of_the_sessions() -> None:
    assert _join(workers=4, partitions=100).kept == 0.8


def test_admission_is_measured_with_a_worker_that_is_known_and_with_none() -> None:
    found = _admission(3, 5, 12, requests=20)
    assert min(found.admit_us, found.admit_unknown_us, found.report_us) > 0


@pytest.mark.parametrize("way", ["log", "worker"])
def test_the_more_survive_the_sooner_streams_go_on(way: Way) -> None:
    found = [go_on(STREAMS, COSTS, survivors=survivors, way=way, busy=0.4) for survivors in (1, 4, 20)]
    assert [each.p99_s for each in found] == sorted((each.p99_s for each in found), reverse=True)
    assert found[-1].back_s <= 1


def test_who_is_told_by_the_worker_waits_for_no_log() -> None:
    by_log, by_worker = (go_on(STREAMS, COSTS, survivors=4, way=way, busy=0.4) for way in ("log", "worker"))
    assert by_worker.by_faq == 0 < by_log.by_faq
    assert by_worker.all_s - by_worker.back_s < 0.1 < by_log.p50_s - by_worker.p50_s


def test_the_log_of_a_dead_gateway_grows_as_long_as_a_stream_of_it_goes_on() -> None:
    ours = _draw(STREAMS, 100, Random(1))
    log, last_s = _Log(ours), max(stream.left_s for stream in ours)
    assert log.written_s(-3) == -3
    assert 0 < log.written_s(1) < 1
    assert log.written_s(last_s + 1) == log.written_s(last_s + 2) < last_s
