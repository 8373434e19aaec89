"""One tenant may store a multiple of the free memory: alone nearly all, next to others less in proportion to its
demand.
"""

import pytest

from shared.conversation.memory_shares import MemoryShares

MB = 1 << 20


def shares(used: float) -> MemoryShares:
    shares = MemoryShares(3_600)
    for tenant, size in (("flood", 90 * MB), ("small", 8 * MB)):
        shares.allows(tenant, size, 10.0)
    shares.used = used
    return shares


@pytest.mark.parametrize(
    ("used", "flood", "small"), [(0.0, True, True), (0.8, True, True), (0.9, False, True), (1.0, False, False)]
)
def test_less_is_remembered_as_redis_fills_up(used: float, flood: bool, small: bool) -> None:
    asked = shares(used)
    assert (asked.allows("flood", 1, 11.0), asked.allows("small", 1, 11.0)) == (flood, small)


def test_a_tenant_alone_gets_nearly_all_memory() -> None:
    alone = MemoryShares(3_600)
    alone.used = 0.88
    assert all(alone.allows("shop", MB, 10.0) for _ in range(100))
    alone.used = 0.9
    assert not alone.allows("shop", MB, 10.0)


def test_a_process_that_has_just_started_refuses_no_first_turn() -> None:
    fresh = MemoryShares(3_600)
    fresh.used = 0.98
    assert fresh.allows("shop", 10_000, 10.0)


def test_a_tenant_that_stops_asking_regains_its_share_after_a_while() -> None:
    """A conversation expires this long after its last turn."""
    asked = shares(0.92)
    for later_s in (3_620.0, 7_240.0):
        for _ in range(8):
            asked.allows("small", MB, later_s)
        assert asked.allows("flood", 1, later_s) is (later_s > 7_000)
