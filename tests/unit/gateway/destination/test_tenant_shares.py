"""A tenant with many more requests than others gets no more once the slots are full; no other tenant is ever held back
for it.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.destination.tenant_shares import TenantShares
from tests.unit.examples import examples

NOW = 1_000_000.0
SLOTS = 8


def holding(*held: tuple[str, int]) -> TenantShares:
    """Tenants that have asked at least once, with the number of their requests at the workers."""
    shares = TenantShares()
    for tenant, count in held:
        for _ in range(max(1, count)):
            shares.record_question(tenant, NOW)
        for number in range(count):
            shares.record_accepted(f"{tenant}{number}", tenant)
    return shares


@pytest.mark.parametrize(
    ("held", "slots", "too_much", "owed"),
    [
        ({"big": 7, "small": 0}, SLOTS, {"big"}, {"small"}),
        ({"big": 60, "small": 0}, SLOTS, {"big"}, {"small"}),
        ({"big": 6, "small": 0}, SLOTS, set(), {"small"}),  # slots are free
        ({"only": 1_000}, SLOTS, set(), set()),
        ({"big": 1_000, "small": 0}, 0, set(), {"small"}),  # no worker is known
        ({"a": 20, "b": 10}, SLOTS, set(), set()),
        ({**dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1), "new": 0}, SLOTS, set(), set()),
    ],
)
def test_a_tenant_that_fills_the_slots_gets_no_more_and_a_small_one_has_priority(
    held: dict[str, int], slots: int, too_much: set[str], owed: set[str]
) -> None:
    """If all have equal shares none has priority: otherwise many small tenants could bypass the limit that protects
    workers.
    """
    shares = holding(*held.items())
    assert {tenant for tenant in held if shares.has_too_much(tenant, slots)} == too_much
    assert {tenant for tenant in held if shares.is_owed(tenant)} == owed


def test_an_occasional_tenant_next_to_a_held_back_flood_is_not_held_back() -> None:
    """It may have the most requests, because the flood gets only what the others leave."""
    shares = holding(("flood", 1), ("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 0))
    for _ in range(500):
        shares.record_question("flood", NOW)
    assert shares.has_too_much("flood", SLOTS)
    assert not any(shares.has_too_much(tenant, SLOTS) for tenant in "abcdefg")


@pytest.mark.parametrize(("times_ms", "counts"), [((60_001,), True), ((60_001, 120_002), False), ((120_001,), False)])
def test_a_flood_counts_for_the_minute_after_it_and_is_forgotten_after_two_at_most(
    times_ms: tuple[int, ...], counts: bool
) -> None:
    shares = holding(("was", 3), ("a", 1), ("b", 1), ("c", 1), ("d", 1))
    for _ in range(500):
        shares.record_question("was", NOW)
    assert shares.has_too_much("was", SLOTS)
    for later in times_ms:
        for tenant in ("was", "a", "b", "c", "d"):
            shares.record_question(tenant, NOW + later)
    assert shares.has_too_much("was", SLOTS) is counts


def test_a_tenant_that_has_not_asked_for_a_minute_is_not_reckoned_with() -> None:
    shares = holding(("big", 20), ("gone", 0))
    shares.record_question("big", NOW + 60_000)
    assert shares.has_too_much("big", SLOTS)
    shares.record_question("big", NOW + 60_001)
    assert not shares.has_too_much("big", SLOTS)


@pytest.mark.parametrize("set_by_ms", [-3_600_000.0, 3_600_000.0])
def test_a_clock_that_is_set_does_no_harm(set_by_ms: float) -> None:
    shares = holding(("big", 20), ("small", 0))
    for tenant in ("big", "small"):
        shares.record_question(tenant, NOW + set_by_ms)
    assert shares.has_too_much("big", SLOTS)


class Definition:
    """The held-back and prioritised tenants by the module's definition, counted from scratch each time."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.halves = [0.0]
        self.open: dict[str, str] = {}

    def record_question(self, tenant: str, now: float) -> None:
        self.asked.append((tenant, now))
        if now - self.halves[-1] > 60_000:
            self.halves.append(now)

    def tenants(self, now: float) -> set[str]:
        return {tenant for tenant, at in self.asked if now - at <= 60_000} | set(self.open.values())

    def is_much(self, held: int, now: float) -> bool:
        tenants = len(self.tenants(now))
        return tenants > 1 and held * tenants > 1.5 * (len(self.open) + 1)

    def has_too_much(self, tenant: str, now: float) -> bool:
        held = Counter(self.open.values())
        if held.total() < SLOTS - 1 or not self.is_much(held[tenant] + 1, now) or held[tenant] < max(held.values()):
            return False
        since = self.halves[-1]
        if len(self.halves) > 1 and self.halves[-1] - self.halves[-2] <= 120_000:
            since = self.halves[-2]
        questions = Counter(each for each, at in self.asked if at >= since)
        much = questions[tenant] * len(self.tenants(now)) > 1.5 * questions.total()
        return much or held[tenant] * 2 >= SLOTS

    def is_owed(self, tenant: str, now: float) -> bool:
        held = Counter(self.open.values())
        if not held or (held[tenant] + 1) * len(self.tenants(now)) > held.total() + 1:
            return False
        return self.is_much(max(held.values()), now)


class AnyTenants(RuleBasedStateMachine):
    """Requests of a few tenants start and end in any order: incremental counts equal the definition's. Each request
    that is not held back is accepted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shares = TenantShares()
        self.by_words = Definition()
        self.now = NOW
        self.number = 0

    @rule(later=st.sampled_from([0.0, 10.0, 59_000.0, 61_000.0, 121_000.0]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule(tenant=st.sampled_from("abcd"), times=st.integers(1, 12))
    def ask(self, tenant: str, times: int) -> None:
        for _ in range(times):
            self.number += 1
            self.shares.record_question(tenant, self.now)
            self.by_words.record_question(tenant, self.now)
            for each in "abcd":
                assert self.shares.has_too_much(each, SLOTS) == self.by_words.has_too_much(each, self.now)
                assert self.shares.is_owed(each) == self.by_words.is_owed(each, self.now)
            if not self.shares.has_too_much(tenant, SLOTS):
                self.take(f"r{self.number}", tenant)

    def take(self, request_id: str, tenant: str) -> None:
        self.shares.record_accepted(request_id, tenant)
        self.by_words.open[request_id] = tenant

    @precondition(lambda self: self.by_words.open)
    @rule(data=st.data(), tenant=st.sampled_from("abcd"))
    def take_again(self, data: st.DataObject, tenant: str) -> None:
        """A request is counted once, for any tenant."""
        self.take(data.draw(st.sampled_from(sorted(self.by_words.open))), tenant)

    @precondition(lambda self: self.by_words.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.by_words.open)))
        del self.by_words.open[name]
        for _ in range(2):  # a repeated end counts once
            self.shares.release(name)

    @invariant()
    def the_books_are_right(self) -> None:
        assert len(self.shares) == len(self.by_words.open)


AnyTenants.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
TestAnyTenants = AnyTenants.TestCase


@given(st.integers(2, 10), st.lists(st.sampled_from(["flood", "other", "end"]), max_size=300))
def test_a_flood_never_takes_the_last_slot_from_other_tenants(num_tenants: int, events: list[str]) -> None:
    """However the others start and end, the flood stays below the slots reserved from it."""
    shares = TenantShares()
    open_: list[tuple[str, str]] = []
    for number in range(num_tenants - 1):
        shares.record_question(f"other{number}", NOW)
    for number, event in enumerate(events):
        if event == "end" and open_:
            shares.release(open_.pop(0)[0])
            continue
        tenant = "flood" if event == "flood" else f"other{number % (num_tenants - 1)}"
        shares.record_question(tenant, NOW)
        if not shares.has_too_much(tenant, SLOTS):
            shares.record_accepted(f"r{number}", tenant)
            open_.append((f"r{number}", tenant))
        flood = sum(holder == "flood" for _, holder in open_)
        most = max((sum(holder == f"other{n}" for _, holder in open_) for n in range(num_tenants - 1)), default=0)
        assert flood <= max(SLOTS - 1, most + 1, 1.5 * (len(open_) + 1) / num_tenants)
