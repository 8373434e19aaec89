"""A worker's clock differs if its reports show it for a while; reports that Kafka delayed do not count."""

from gateway.destination.fleet import WorkerClocks


def told(clocks: WorkerClocks, *behind_ms: float, from_ms: float = 0) -> list[float]:
    """Return when a difference is logged, with one report a second."""
    times = [from_ms + 1_000.0 * second for second in range(len(behind_ms))]
    return [now for behind, now in zip(behind_ms, times, strict=True) if clocks.differs("w1", behind, now)]


def test_a_lasting_difference_is_logged_once_in_either_direction() -> None:
    assert told(WorkerClocks(), *[60_000] * 20) == [5_000]
    assert told(WorkerClocks(), *[-2_000] * 20) == [5_000]


def test_delayed_reports_are_no_clock_difference() -> None:
    clocks = WorkerClocks()
    assert not any(clocks.differs("w1", behind, 0) for behind in (38_000, 37_000, 36_000))
    assert told(clocks, *[100] * 20, from_ms=1_000) == []


def test_a_worker_that_left_or_was_corrected_is_logged_again() -> None:
    clocks = WorkerClocks()
    assert told(clocks, *[60_000] * 6, 0, *[60_000] * 6) == [5_000, 12_000]
    clocks.forget("w1")
    assert told(clocks, *[60_000] * 6, from_ms=20_000) == [25_000]
