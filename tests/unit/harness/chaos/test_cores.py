"""A process that stands still is told apart: it computed, it had no core, or it had nothing to do."""

import os

import pytest

from tests.chaos.ledger.cores import CoreWatch, Spent, notable, read_spent


@pytest.mark.parametrize(
    ("computed_s", "waited_s", "told"),
    [
        (0.50, 0.00, "gateway-1: of 0.50 s it computed 0.50 and had no core for 0.00"),
        (0.05, 0.45, "gateway-1: of 0.50 s it computed 0.05 and had no core for 0.45"),
        (0.30, 0.05, None),
        (0.00, 0.00, None),
    ],
)
def test_what_kept_a_process_is_told_and_idleness_is_not(computed_s: float, waited_s: float, told: str | None) -> None:
    before = Spent(7.0, 1.0)
    assert notable("gateway-1", before, Spent(7.0 + computed_s, 1.0 + waited_s), 0.5) == told


def test_what_a_thread_computes_is_counted() -> None:
    before = read_spent(os.getpid())
    sum(number * number for number in range(500_000))
    now = read_spent(os.getpid())
    assert before is not None
    assert now is not None
    assert now.computing_s > before.computing_s
    assert now.waiting_s >= before.waiting_s


def test_a_process_that_is_gone_tells_nothing() -> None:
    assert read_spent(2**22 + 1) is None


def test_a_process_that_computes_on_end_is_told_of() -> None:
    """This one, for as long as it takes until that is noticed."""
    with CoreWatch(lambda: {"busy": os.getpid()}) as watch:
        while not watch.lines:
            sum(number * number for number in range(10_000))
    assert all(line.what.startswith("busy: of ") for line in watch.lines)
