"""What cannot be taken is refused at once, with the reason and when to come back."""

import pytest

from gateway.admission import AdmissionLimits, check_inflight, check_length, promise
from shared.errors import ProtocolError
from shared.messages import ResponseCreate
from shared.settings import Settings

LIMITS = AdmissionLimits(
    max_input_tokens=10,
    max_inflight=100,
    max_inflight_per_connection=4,
    first_token_ms=200,
    deadline_ms=1_000,
    max_deadline_ms=60_000,
)


@pytest.mark.parametrize(
    ("now", "draining", "code", "kind", "retry_after_ms"),
    [
        ((5, 4), False, "too_many_inflight", "rate_limit_error", None),
        ((100, 0), False, "queue_full", "overloaded_error", 1_000),
        ((0, 0), True, "shutting_down", "overloaded_error", 1_000),
        ((100, 4), True, "shutting_down", "overloaded_error", 1_000),
    ],
)
def test_one_more_than_fits_is_refused(
    now: tuple[int, int], draining: bool, code: str, kind: str, retry_after_ms: int | None
) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_inflight(LIMITS, inflight=now[0], of_connection=now[1], draining=draining)
    error = caught.value
    assert (error.code, error.kind, error.retriable, error.retry_after_ms) == (code, kind, True, retry_after_ms)


def test_the_last_that_fits_is_taken() -> None:
    check_inflight(LIMITS, inflight=99, of_connection=3, draining=False)
    check_length(LIMITS, 10)


def test_an_input_that_is_too_long_is_told_by_how_much() -> None:
    with pytest.raises(ProtocolError, match="has 11 tokens, 10 are allowed") as caught:
        check_length(LIMITS, 11)
    assert (caught.value.code, caught.value.param, caught.value.retriable) == ("input_too_long", "input", False)


def ask(**fields: int) -> ResponseCreate:
    return ResponseCreate(event_id="e", input="x", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "soft", "hard"),
    [
        ({}, 1_200, 2_000),
        ({"deadline_ms": 60_000}, 1_200, 61_000),
        ({"first_token_ms": 50}, 1_050, 2_000),
        ({"deadline_ms": 100}, 1_100, 1_100),
        ({"first_token_ms": 2**53 - 1}, 2_000, 2_000),
    ],
)
def test_the_promise_runs_from_the_receipt(asked: dict[str, int], soft: int, hard: int) -> None:
    deadline = promise(ask(**asked), LIMITS, 1_000.5)
    assert (deadline.first_token_unix_ms, deadline.deadline_unix_ms) == (soft, hard)


def test_a_deadline_beyond_the_longest_is_refused() -> None:
    """An absolute time given by mistake would otherwise wait for decades."""
    with pytest.raises(ProtocolError, match="deadline_ms=60001 is above 60000") as caught:
        promise(ask(deadline_ms=60_001), LIMITS, 0)
    assert (caught.value.code, caught.value.param) == ("invalid_field", "deadline_ms")


def test_the_limits_are_those_of_the_settings() -> None:
    settings = Settings()
    limits = AdmissionLimits.of(settings)
    assert limits.max_inflight == settings.gateway.max_inflight
    assert limits.max_inflight_per_connection == settings.gateway.max_inflight_per_connection
    assert limits.max_input_tokens == settings.limits.max_input_tokens
    assert limits.first_token_ms == settings.promise.first_token_ms
    assert limits.deadline_ms == settings.promise.deadline_ms
    assert limits.max_deadline_ms == settings.promise.max_deadline_ms
