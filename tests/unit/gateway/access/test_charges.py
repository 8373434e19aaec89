"""The cost of each kind of message, and which limits it is charged to."""

from collections.abc import Mapping

import pytest

from gateway.access.charges import COSTS_UNITS, Caller, Charge, Kind, LocalQuota, Tariff
from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.wire.messages import HandoffReason
from shared.wire.session_key import SessionKey

SESSION = SessionKey("shop", "s")
ALICE = Caller(SESSION, "alice", "192.0.2.7")
NOBODY = Caller(SESSION)


def tariff(costs: Mapping[Kind, int] = COSTS_UNITS, **quotas: int) -> Tariff:
    return Tariff(QuotaSettings(**quotas), HandoffSettings(), costs)


@pytest.mark.parametrize("kind", ["ask", "resume", "delete", "handoff", "feedback", "token"])
def test_every_kind_is_charged_to_the_address_the_subject_and_the_tenant(kind: Kind) -> None:
    costs = {**COSTS_UNITS, kind: 7}
    prices = tariff(costs, subject_per_minute=100, tenant_per_minute=200, address_per_minute=300)
    assert Charge("address", "192.0.2.7", 7, 300) in prices.here(kind, ALICE)
    assert prices.shared(kind, ALICE) == [
        Charge("subject", "subject/alice", 7, 100),
        Charge("tenant", "tenant", 7, 200),
    ]


@pytest.mark.parametrize(("num_chars", "units"), [(1, 1), (1_000, 1), (1_001, 2), (8_000, 8), (10**6, 300)])
def test_a_long_question_costs_its_address_more(num_chars: int, units: int) -> None:
    prices = tariff(address_per_minute=300)
    assert prices.here("ask", ALICE, num_chars) == [Charge("address", "192.0.2.7", units, 300)]


def test_a_session_may_ask_for_a_person_this_often() -> None:
    assert Charge("session", "shop/s", 1, 6) in tariff().here("handoff", ALICE)
    assert [charge.payer for charge in tariff().here("ask", ALICE)] == ["address"]


def test_a_client_without_a_name_a_missing_limit_and_a_zero_cost_charge_nothing() -> None:
    prices = tariff(tenant_per_minute=9)
    assert prices.here("ask", NOBODY) == []
    assert prices.shared("ask", NOBODY) == [Charge("tenant", "tenant", 1, 9)]
    assert tariff(address_per_minute=0, subject_per_minute=0).here("ask", ALICE) == []
    assert tariff(subject_per_minute=0).shared("ask", ALICE) == []
    assert tariff({"feedback": 0}).here("feedback", ALICE) == []


def test_a_subjects_name_never_equals_that_of_a_tenant_or_a_hand_off() -> None:
    prices = tariff(tenant_per_minute=9)
    opened = [
        prices.opened("requested", ALICE),
        prices.opened("fallbacks", Caller(SESSION, "", "192.0.2.7")),
    ]
    names = {charge.name for charges in opened for charge in charges}
    names |= {"tenant"}
    for subject in names:
        (charge, _) = prices.shared("ask", Caller(SESSION, subject))
        assert charge.name not in names


def test_nothing_costs_more_than_a_minutes_worth() -> None:
    """Otherwise it could never be charged."""
    assert tariff(subject_per_minute=5).shared("delete", ALICE) == [Charge("subject", "subject/alice", 5, 5)]


def test_hand_offs_by_customers_and_by_an_outage_are_counted_separately() -> None:
    prices = Tariff(QuotaSettings(), HandoffSettings(per_minute=3))
    asked_for, outage = Charge("tenant", "requested", 1, 3), Charge("tenant", "fallbacks", 1, 3)
    assert prices.opened("requested", NOBODY) == prices.opened("text", NOBODY) == [asked_for]
    assert prices.opened("fallbacks", NOBODY) == [outage]


@pytest.mark.parametrize("reason", ["text", "fallbacks"])
def test_one_address_or_subject_cannot_use_up_the_tenants_hand_offs(reason: HandoffReason) -> None:
    prices, counts = Tariff(QuotaSettings(), HandoffSettings(per_minute=30)), LocalQuota()

    def taken(*callers: Caller) -> int:
        return sum(counts.charge(prices.opened(reason, each), 0.0, tenant="shop") is None for each in callers)

    flood = [Caller(SessionKey("shop", f"s{number}"), "", "192.0.2.7") for number in range(60)]
    assert taken(*flood) == 6
    assert taken(*[Caller(SessionKey("shop", f"t{number}"), "mallory", "192.0.2.7") for number in range(60)]) == 6
    assert (
        taken(*[Caller(SessionKey("shop", f"r{number}"), f"customer {number}", "192.0.2.8") for number in range(18)])
        == 18
    )
    assert taken(Caller(SessionKey("shop", "last"), "one more", "192.0.2.9")) == 0, "the tenant's own limit"


def test_without_a_tenant_limit_hand_offs_are_unlimited() -> None:
    assert Tariff(QuotaSettings(), HandoffSettings(per_minute=0)).opened("text", ALICE) == []
