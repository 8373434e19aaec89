"""What tokens and resume cost is told within a round; and the gateway to compare with gives no cursor at all."""

import subprocess
import sys

import pytest

from tests.bench.gateway.price import Turn, price


def test_the_price_is_that_of_the_rounds_and_not_of_the_machines_speed() -> None:
    """A tenth dearer in each round is a tenth dearer, however slow the machine was just then."""
    measured = [
        Turn(promised=promised, p50_ms=slow * (1.1 if promised else 1.0), cpu_ms=slow * (3.0 if promised else 2.0))
        for slow in (2.0, 9.0, 3.0)
        for promised in (False, True)
    ]
    found = price(measured)
    assert (found.p50.value, found.cpu.value) == pytest.approx((1.1, 1.5))
    assert (found.p50.low, found.p50.high) == pytest.approx((1.1, 1.1))


def test_a_round_without_its_other_half_has_no_price() -> None:
    with pytest.raises(ValueError, match="are no pairs"):
        price([Turn(promised=True, p50_ms=2.0, cpu_ms=2.0)])


def test_the_gateway_to_compare_with_numbers_its_deltas_and_gives_no_cursor() -> None:
    """In a process of its own: it stays so for good."""
    program = """
from gateway.request.cursor import CursorKey, Place, Told
from gateway.request.outbox import Opened, Outbox, Shown
from tests.bench.gateway.unresumable import forget_cursors
from shared.wire.messages import ResponseCreated, ResponseDelta

def told(outbox):
    told = Told(bytes(12), "e1", "short", 1_000, 500, 2_000, Place(0, 0), None)
    created = ResponseCreated(response_id=told.response_id, event_id="e1", bucket="short")
    outbox.begin(CursorKey(bytes(32)).seal("shop", "s"), (), 0.0)
    outbox.put(Opened(created, told, 0.0))
    outbox.take(0.0)
    for text in ("a", "b"):
        outbox.put(Shown(told.response_id, 0, text))
        (delta,) = outbox.take(0.0)
        yield delta.seq, delta.delta, bool(delta.cursor)

assert list(told(Outbox())) == [(0, "a", True), (1, "b", True)]
forget_cursors()
assert list(told(Outbox())) == [(0, "a", False), (1, "b", False)]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
