"""A conversation goes to the partition with the soonest first text, and never while an earlier question of it may be
answered.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.destination.partitions import Claimed, Wait, offer, skew

BUSY, IDLE = Wait(2_000.0, 2_100.0), Wait(100.0, 200.0)
MS = st.floats(0.0, 60_000.0)
WAITS = st.dictionaries(st.integers(0, 7), st.builds(lambda warm, cold: Wait(warm, warm + cold), MS, MS))


@pytest.mark.parametrize(
    ("home", "waits", "last", "chosen"),
    [
        (0, {}, None, Claimed(0, "hash")),
        (0, {0: IDLE, 1: IDLE}, None, Claimed(0, "hash")),
        (0, {0: BUSY, 1: IDLE}, None, Claimed(1, "slack")),
        (2, {1: IDLE, 3: IDLE}, None, Claimed(3, "slack")),  # its home partition may get no questions
        (0, {0: IDLE, 1: Wait(150.0, 250.0)}, 1, Claimed(1, "kv")),
        (0, {0: IDLE, 1: BUSY}, 1, Claimed(0, "moved")),
        (0, {0: Wait(100.0, 1_900.0), 1: BUSY}, 1, Claimed(1, "kv")),  # its KV would be computed again there
        (0, {0: IDLE, 1: BUSY}, 1, Claimed(1, "pinned")),
        (0, {0: IDLE}, 1, Claimed(0, "moved")),
        (0, {}, 1, Claimed(1, "kv")),  # no conversation moves in a rebalance
    ],
)
def test_a_conversation_goes_to_the_partition_with_the_soonest_first_text(
    home: int, waits: dict[int, Wait], last: int | None, chosen: Claimed
) -> None:
    assert offer(home, waits).to(last, pinned=chosen.why == "pinned") == chosen


@given(home=st.integers(0, 7), waits=WAITS, last=st.none() | st.integers(0, 7), pinned=st.booleans())
def test_a_conversation_moves_only_if_unblocked_and_faster_elsewhere(
    home: int, waits: dict[int, Wait], last: int | None, pinned: bool
) -> None:
    chosen = offer(home, waits).to(last, pinned=pinned)
    assert chosen.partition in {home, last, *waits}
    if last is not None and chosen.partition != last:
        assert not pinned
        assert last not in waits or waits[chosen.partition].cold_ms < waits[last].warm_ms
    if last is None and chosen.partition != home:
        assert home not in waits or waits[chosen.partition].cold_ms < waits[home].cold_ms


def test_skew_is_the_busiest_workers_wait_over_the_median_one() -> None:
    """However many partitions each of them reads."""
    assert skew({}) == skew({0: IDLE, 1: replace(IDLE)}) == 1.0
    assert skew({0: IDLE, 1: BUSY, 2: BUSY}) == skew({0: IDLE, 1: replace(IDLE), 2: BUSY}) == 20.0
    assert skew({0: IDLE, 1: BUSY, 2: replace(BUSY)}) == 1.0
    assert skew({0: Wait(0.0, 0.0), 1: Wait(5.0, 5.0)}) == 1.0
    assert skew({0: Wait(0.0, 0.0), 1: BUSY}) > 1
