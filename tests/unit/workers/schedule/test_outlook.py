"""A worker sends its expectations as plain numbers, and soon after a large change."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.codec import decode_report, msgpack_encode
from shared.wire.fields import MAX_PREDICTED_MS
from shared.wire.messages import Bucket
from shared.wire.topics import BUCKETS
from workers.schedule.outlook import Outlook


def outlook(first_token_ms: dict[Bucket, float], *, backlog_ms: float = 0.0, running: int = 3) -> Outlook:
    return Outlook(
        running=running,
        waiting=2,
        free_slots=5,
        backlog_ms=backlog_ms,
        first_token_ms=first_token_ms,
        service_ms=first_token_ms,
        cold_ms=5.0,
    )


def test_a_report_has_what_the_outlook_says() -> None:
    report = outlook({"short": 12.34567, "long": 99.0}, backlog_ms=7.0).report(
        "w-1", {"short": [0, 3], "long": []}, 1_234.9
    )
    assert (report.worker_id, report.unix_ms, report.buckets) == ("w-1", 1_234, ("short", "long"))
    assert (report.slots, report.running, report.waiting, report.backlog_ms) == (8, 3, 2, 7.0)
    assert report.cold_ms == 5.0
    assert report.partitions == {"short": (0, 3)}
    assert report.first_token_ms == report.service_ms == {"short": 12.346, "long": 99.0}


@given(
    st.dictionaries(st.sampled_from(BUCKETS), st.floats(allow_nan=True, allow_infinity=True)),
    st.floats(allow_nan=True, allow_infinity=True),
)
def test_whatever_is_predicted_the_gateways_can_read_it(first_token_ms: dict[Bucket, float], backlog_ms: float) -> None:
    """A prediction that is NaN or infinite is sent as the longest."""
    report = outlook(first_token_ms, backlog_ms=backlog_ms).report("w", dict.fromkeys(BUCKETS, ()), 1.0)
    assert decode_report(msgpack_encode(report)) == report
    for bucket, told in report.first_token_ms.items():
        given_ms = first_token_ms[bucket]
        assert told == pytest.approx(
            min(max(given_ms, 0.0), 1e9) if not math.isnan(given_ms) else MAX_PREDICTED_MS, abs=0.001
        )


@pytest.mark.parametrize(
    ("before", "now", "much"),
    [
        (100.0, 150.0, False),
        (100.0, 151.0, True),
        (0.0, 51.0, True),
        (1_000.0, 1_250.0, False),
        (1_000.0, 1_251.0, True),
        (1_000.0, 700.0, True),
    ],
)
def test_a_change_of_a_quarter_is_much(before: float, now: float, much: bool) -> None:
    """Another number of rows alone is not; another set of buckets is."""
    assert outlook({"short": now}, running=8).differs_much(outlook({"short": before}, running=0)) is much
    assert outlook({"short": now}).differs_much(outlook({"long": before}))
