"""One thread runs one task after the other; an exception in one task does not stop the next."""

import threading
from collections.abc import Callable, Iterator

import pytest

from workers.kv.cache import Lane

LIMIT_S = 10.0


def never() -> float | None:
    return None


class Lanes:
    """Starts lanes, and ends them with the test."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []

    def start(self, idle: Callable[[], object] = never, idle_due_s: Callable[[], float | None] = never) -> Lane:
        lane = Lane("lane-under-test", idle=idle, idle_due_s=idle_due_s)
        lane.start()
        self._lanes.append(lane)
        return lane

    def close(self) -> None:
        for lane in self._lanes:
            lane.close(LIMIT_S)


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    lanes = Lanes()
    yield lanes
    lanes.close()
    assert "lane-under-test" not in [thread.name for thread in threading.enumerate()]


def test_work_is_done_in_order_on_one_thread_of_its_own(lanes: Lanes) -> None:
    lane, done = lanes.start(), []
    failing = lane.submit(lambda: 1 // 0)
    futures = [lane.submit(lambda n=n: done.append((n, threading.get_ident()))) for n in range(20)]  # type: ignore[misc]
    for future in futures:
        future.result(LIMIT_S)
    with pytest.raises(ZeroDivisionError):
        failing.result(LIMIT_S)
    assert [n for n, _ in done] == list(range(20))
    assert len({thread for _, thread in done}) == 1
    assert done[0][1] != threading.get_ident()


def test_what_is_cancelled_before_its_turn_is_not_done(lanes: Lanes) -> None:
    lane, go, done = lanes.start(), threading.Event(), []
    lane.submit(lambda: go.wait(LIMIT_S))
    cancelled, kept = lane.submit(lambda: done.append("cancelled")), lane.submit(lambda: done.append("kept"))
    assert cancelled.cancel()
    go.set()
    kept.result(LIMIT_S)
    assert done == ["kept"]


def test_closing_waits_no_longer_than_it_may(lanes: Lanes) -> None:
    lane, go = lanes.start(), threading.Event()
    hanging = lane.submit(lambda: go.wait(LIMIT_S))
    lane.close(0.01)
    assert not hanging.done()
    go.set()


def test_without_work_it_looks_after_what_it_owns_on_its_thread(lanes: Lanes) -> None:
    looked, threads = threading.Event(), set()

    def idle() -> None:
        threads.add(threading.get_ident())
        looked.set()

    lane = lanes.start(idle, lambda: None if looked.is_set() else 0.001)
    assert looked.wait(LIMIT_S)
    assert threads == {lane.submit(threading.get_ident).result(LIMIT_S)}


def test_looking_after_it_may_fail_and_the_work_goes_on(lanes: Lanes, capsys: pytest.CaptureFixture[str]) -> None:
    failed = threading.Event()

    def idle() -> None:
        failed.set()
        raise RuntimeError("our own fault")

    lane = lanes.start(idle, lambda: None if failed.is_set() else 0.001)
    assert failed.wait(LIMIT_S)
    assert lane.submit(lambda: "value").result(LIMIT_S) == "value"
    assert "kv_idle_failed" in capsys.readouterr().out
