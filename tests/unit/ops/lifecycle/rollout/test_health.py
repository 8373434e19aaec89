"""A rollout waits while a gateway is not well."""

import pytest

from ops.lifecycle.rollout.health import ails
from ops.operate.diagnose.pages import parse_page


@pytest.mark.parametrize(
    ("breaker", "rung", "reason"),
    [
        (0, 0, None),
        (1, 0, None),
        (2, 0, "the breaker of g is open"),
        (0, 1, "the ladder of g is below the champion"),
    ],
)
def test_an_open_breaker_and_a_lower_rung_are_reasons(breaker: int, rung: int, reason: str | None) -> None:
    page = parse_page(f'replyline_gateway_guards{{what="breaker"}} {breaker}\nreplyline_gateway_rung {rung}\n')
    assert ails(page, "g") == reason
