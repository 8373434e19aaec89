"""Which conversation gets which version: decided by the hash alone, equally everywhere, and reversed only by a
rollback.
"""

from hypothesis import given
from hypothesis import strategies as st

from shared.versions.state import Rule, State
from shared.wire.session_key import SessionKey

SHARES = st.floats(0.0, 0.5)
SESSIONS = [SessionKey("shop", f"session-{number}") for number in range(100_000)]


def test_the_hash_selects_the_requested_share() -> None:
    for share, within in ((0.01, 0.002), (0.1, 0.002), (0.5, 0.005)):  # three standard deviations and less
        rule = Rule(salt=f"rollout-{share}", share=share, control=True)
        lanes = [rule.lane(session) for session in SESSIONS]
        assert abs(lanes.count("canary") / len(lanes) - share) < within
        assert abs(lanes.count("control") / len(lanes) - share) < within


@given(SHARES, SHARES, st.integers(0, 99_999))
def test_a_growing_share_moves_no_conversation_back(one: float, other: float, number: int) -> None:
    less, more = sorted((one, other))
    before, after = (Rule(salt="a", share=share, control=True).lane(SESSIONS[number]) for share in (less, more))
    assert before in {"champion", after}


CLASSES = st.sampled_from(["short", "medium", "long", "lang:zh", "lang:en"])


@given(SHARES, st.dictionaries(CLASSES, SHARES), st.dictionaries(st.sampled_from(["shop", "acme"]), SHARES))
def test_a_conversation_gets_the_least_share_of_all_classes(
    share: float, classes: dict[str, float], tenants: dict[str, float]
) -> None:
    shares = classes | {f"tenant:{name}": each for name, each in tenants.items()}
    rule = Rule(salt="a", share=share, shares=shares)
    assert rule.share_of("shop") == min([tenants.get("shop", share), *classes.values()])


def test_a_tenant_may_have_its_own_share() -> None:
    rule = Rule(salt="a", share=0.0, shares={"tenant:acme": 1.0})
    assert [rule.lane(SessionKey(tenant, "s")) for tenant in ("acme", "shop")] == ["canary", "champion"]


def test_without_a_canary_all_conversations_get_the_champion() -> None:
    rule = Rule(salt="a", share=0.5)
    assert {State(rule=rule).lane(session) for session in SESSIONS[:100]} == {"champion"}
