"""A rollout waits while a gateway is not well, and for the champion's workers."""

from typing import Any

import pytest

from ops.lifecycle.rollout.health import Watch, ails
from ops.lifecycle.versions.workers import SILENT_MS
from ops.operate.diagnose.pages import parse_page
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from tests.support.builders.gateway import report


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


def test_workers_that_are_all_silent_have_loaded_nothing() -> None:
    """As after an outage of Kafka: a version would be the champion that its workers cannot load."""
    reports: Any = None
    watch = Watch(Settings().kafka, (), reports, _since_s=float("-inf"))
    assert watch.have_loaded("b"), "there is nobody to wait for"
    watch._champions.observe("w", report("w", revisions=("b",)), now_unix_ms())
    assert watch.have_loaded("b")
    watch._champions.observe("w", report("w", revisions=("b",)), now_unix_ms() - SILENT_MS - 1)
    assert not watch.have_loaded("b")
