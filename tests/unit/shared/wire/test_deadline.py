"""One absolute deadline: soft until the first token, hard after it."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.deadline import Deadline, parse_unix_ms, reads_as_seconds
from shared.wire.fields import MAX_INTEGER

MOMENTS = st.floats(0, 2**43, allow_nan=False)
SPANS = st.integers(1, 3_600_000)


def test_a_deadline_counts_from_the_receipt() -> None:
    deadline = Deadline.after(1_000.9, first_token_ms=200, whole_ms=1_000)
    assert deadline == Deadline(first_token_unix_ms=1_200, deadline_unix_ms=2_000)


def test_a_clock_that_is_ahead_gives_the_same_deadlines() -> None:
    deadline = Deadline(first_token_unix_ms=1_200, deadline_unix_ms=2_000)
    assert deadline.later(30) == Deadline(first_token_unix_ms=1_230, deadline_unix_ms=2_030)


def test_a_soft_deadline_after_the_hard_one_is_reduced_to_it() -> None:
    deadline = Deadline.after(0, first_token_ms=5_000, whole_ms=1_000)
    assert deadline.first_token_unix_ms == deadline.deadline_unix_ms == 1_000


def test_a_deadline_has_expired_at_its_own_millisecond() -> None:
    deadline = Deadline(first_token_unix_ms=100, deadline_unix_ms=200)
    assert [deadline.expired(now, started=False) for now in (99.999, 100, 200)] == [False, True, True]
    assert [deadline.expired(now, started=True) for now in (100, 199.999, 200)] == [False, False, True]


@given(MOMENTS, SPANS, SPANS, MOMENTS)
def test_a_request_too_late_after_its_start_was_too_late_before_it(
    now: float, soft: int, hard: int, later: float
) -> None:
    deadline = Deadline.after(now, first_token_ms=soft, whole_ms=hard)
    assert deadline.first_token_unix_ms <= deadline.deadline_unix_ms <= now + hard
    assert deadline.expired(later, started=False) >= deadline.expired(later, started=True)
    assert not deadline.expired(now - 1, started=False)


@pytest.mark.parametrize(
    ("unix_ms", "seconds"),
    [(0, False), (999_999_999, False), (1_000_000_000, True), (9_999_999_999, True), (10_000_000_000, False)],
)
def test_ten_digits_are_seconds(unix_ms: int, seconds: bool) -> None:
    assert reads_as_seconds(unix_ms) == seconds


@given(st.datetimes(min_value=datetime(2001, 9, 10), max_value=datetime(2286, 11, 19)))  # noqa: DTZ001
def test_a_time_in_milliseconds_is_distinguished_from_seconds(moment: datetime) -> None:
    seconds = int(moment.replace(tzinfo=UTC).timestamp())
    assert reads_as_seconds(seconds)
    assert not reads_as_seconds(seconds * 1_000)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"soon",
        b"tomorrow",
        b"-5",
        b"1.5",
        b"1e12",
        b"1\n",
        "١٢".encode(),
        b"9" * 17,
        b"2026-11-28",
        b"2026-11-28T12:00",
    ],
)
def test_a_value_that_is_no_number_or_no_moment_is_no_time(text: bytes) -> None:
    assert parse_unix_ms(text) is None


def test_the_largest_time_is_that_of_the_messages() -> None:
    assert parse_unix_ms(str(MAX_INTEGER).encode()) == MAX_INTEGER


@pytest.mark.parametrize(
    "header",
    [
        b"1795867200000",
        b'"1795867200000"',
        b" 1795867200000",
        (1795867200000).to_bytes(8, "big"),
        b"2026-11-28T12:00:00Z",
        b'"2026-11-28T13:00:00.000+01:00"',
    ],
)
def test_a_time_is_read_in_the_format_of_kafkas_clients(header: bytes) -> None:
    assert parse_unix_ms(header) == 1795867200000
