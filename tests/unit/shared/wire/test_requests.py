"""A received request becomes one with every field filled in."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.destination.destination import TO_CHAMPION
from gateway.forwarding.router import _complete
from shared.errors import ProtocolError
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.wire.cloud_events import request_headers
from shared.wire.codec import msgpack_encode
from shared.wire.fields import MAX_SEED
from shared.wire.messages import ChatRequest
from shared.wire.requests import heed_headers, settle
from tests.support.hostile.message_strategies import any_of
from tests.support.samples.request_defaults import DEFAULTS

NOW = 1_000_000.75


def request(**fields: object) -> ChatRequest:
    return ChatRequest(id="r1", session_id="s1", input="hi", **fields)  # type: ignore[arg-type]


SAID = {
    "tenant": "shop",
    "max_output_tokens": 7,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 0,
    "created_unix_ms": 999_000,
    "reply_topic": "chat.replies.crm",
    "reply_partition": 3,
}
DEFAULT = {
    "tenant": "demo",
    "max_output_tokens": 160,
    "temperature": 0.0,
    "top_p": 1.0,
    "created_unix_ms": 1_000_000,
    "reply_topic": "chat.replies.external",
    "reply_partition": None,
}


@pytest.mark.parametrize(
    ("said", "settled"), [({}, DEFAULT), (SAID, SAID), ({"max_output_tokens": 10_000}, {"max_output_tokens": 512})]
)
def test_a_requests_values_are_limited_and_missing_ones_are_filled_in(
    said: dict[str, object], settled: dict[str, object]
) -> None:
    asked = request(**said)
    order = settle(asked, DEFAULTS, NOW)
    assert {name: getattr(order, name) for name in settled} == settled
    assert order.request is asked


AHEAD = 300_000  # the producer's clock is five minutes ahead


@pytest.mark.parametrize(
    ("created", "soft", "hard", "first_token", "deadline"),
    [
        (None, None, None, 1_000_200, 1_001_000),
        (999_000, 1_000_500, 1_002_000, 1_000_500, 1_002_000),
        (999_500, None, None, 999_700, 1_000_500),  # counted from the creation, not from the read
        (None, None, 2**50, 1_000_200, 1_060_000),  # limited to the maximum
        (None, 2**50, 1_000_700, 1_000_700, 1_000_700),  # the soft deadline is never after the hard one
        (0, None, None, 200, 1_000),  # deadlines in the past stay
        (None, None, 5, 5, 5),
        # Created in the future: counted from now.
        (1_000_000 + AHEAD, 1_000_300 + AHEAD, 1_005_000 + AHEAD, 1_000_300, 1_005_000),
        (1_000_000 + AHEAD, None, None, 1_000_200, 1_001_000),
        # Before its own creation: the creation time is wrong, for example in microseconds.
        (2**50, None, 1_005_000, 1_000_200, 1_005_000),
        # A clock that is behind cannot be distinguished from a request that has waited.
        (700_000, None, 701_000, 700_200, 701_000),
    ],
)
def test_a_request_gets_its_deadlines(
    created: int | None, soft: int | None, hard: int | None, first_token: int, deadline: int
) -> None:
    asked = request(created_unix_ms=created, first_token_unix_ms=soft, deadline_unix_ms=hard)
    order = settle(asked, DEFAULTS, NOW)
    assert (order.deadline.first_token_unix_ms, order.deadline.deadline_unix_ms) == (first_token, deadline)
    assert order.created_unix_ms == min(1_000_000, 1_000_000 if created is None else created)
    assert order.deadline.expired(NOW, started=True) == (deadline <= NOW)


@pytest.mark.parametrize("created", [None, 1_000_000 - 5_000, 1_000_000 + AHEAD])
def test_an_erasure_after_the_arrival_is_later_than_the_request(created: int | None) -> None:
    """The record was read ten seconds after it arrived, and its producer's clock may be ahead. The promise is kept."""
    arrived, asked = 1_000_000 - 10_000, request(created_unix_ms=created)
    order = settle(asked, DEFAULTS, NOW, arrived_unix_ms=arrived)
    assert order.generation < order.created_unix_ms <= arrived
    assert order.deadline == settle(asked, DEFAULTS, NOW).deadline


def test_a_broker_whose_clock_is_a_little_behind_makes_no_request_older() -> None:
    """Otherwise an erasure just before would erase it."""
    asked = request(created_unix_ms=1_000_000)
    assert settle(asked, DEFAULTS, NOW, arrived_unix_ms=1_000_000 - 900).created_unix_ms == 1_000_000


def test_a_process_with_a_changed_clock_uses_its_own_time() -> None:
    """It is five minutes behind the wire's time: the deadline comes at the promised moment."""
    asked = request(created_unix_ms=1_000_000, first_token_unix_ms=1_000_500, deadline_unix_ms=1_002_000)
    deadline = settle(asked, DEFAULTS, NOW).by_a_clock_behind(AHEAD).deadline
    assert (deadline.first_token_unix_ms, deadline.deadline_unix_ms) == (1_000_500 - AHEAD, 1_002_000 - AHEAD)


@given(any_of(ChatRequest))
def test_every_request_is_completed_or_its_reply_topic_is_refused(asked: ChatRequest) -> None:
    try:
        order = settle(asked, DEFAULTS, NOW)
    except ProtocolError as error:
        times = (asked.created_unix_ms, asked.deadline_unix_ms, asked.first_token_unix_ms)
        assert (
            asked.reply_topic
            or (asked.reply_partition or 0) >= 2**31
            or any(10**9 <= (time or 0) < 10**10 for time in times)
        )
        code = error.code
    else:
        code = ""
        assert order.deadline.first_token_unix_ms <= order.deadline.deadline_unix_ms <= NOW + DEFAULTS.max_deadline_ms
        assert 1 <= order.max_output_tokens <= DEFAULTS.max_output_tokens
        assert 0 <= order.seed <= MAX_SEED
        assert order.created_unix_ms <= NOW
        headers = request_headers(_complete(order, TO_CHAMPION), source="test")
        assert heed_headers(asked, headers).deadline_unix_ms is not None
        assert headers["deadline-unix-ms"] == str(order.deadline.deadline_unix_ms).encode()
        assert headers["ce_id"] == asked.id.encode()
        msgpack_encode(order.request)
    assert code in {"", "reply_topic_not_allowed", "invalid_field"}


SECONDS = 1_795_000_000


@pytest.mark.parametrize("name", ["created_unix_ms", "deadline_unix_ms", "first_token_unix_ms"])
def test_a_time_in_seconds_is_refused_with_the_unit_named(name: str) -> None:
    """As milliseconds it would be a day in 1970, and the request too late from the start."""
    with pytest.raises(ProtocolError, match=rf"{name}={SECONDS} is a Unix time in seconds; write milli") as caught:
        settle(request(**{name: SECONDS}), DEFAULTS, NOW)
    assert (caught.value.code, caught.value.param) == ("invalid_field", name)


@given(st.integers(0, 2**44), st.integers(0, 2**44), st.integers(0, 600_000))
def test_no_clock_gives_more_time_than_requested(created: int, now: int, span: int) -> None:
    """A clock that is right or ahead takes none away."""
    assume(not any(10**9 <= time < 10**10 for time in (created, created + span)))
    deadline = settle(request(created_unix_ms=created, deadline_unix_ms=created + span), DEFAULTS, now).deadline
    assert deadline.deadline_unix_ms <= max(created, now) + span
    if created >= now:
        assert deadline.deadline_unix_ms == now + min(span, DEFAULTS.max_deadline_ms)


@pytest.mark.parametrize(
    ("header", "value", "heeded"),
    [
        (None, 5_000, 5_000),
        (b"4000", None, 4_000),
        (b"4000", 5_000, 4_000),
        (b"6000", 5_000, 5_000),
        (None, None, None),
    ],
)
def test_the_earlier_of_two_deadlines_counts(header: bytes | None, value: int | None, heeded: int | None) -> None:
    """One is in the header, one in the value: a reader that saw only the header has applied it already."""
    headers = {} if header is None else {"deadline-unix-ms": header}
    assert heed_headers(request(deadline_unix_ms=value), headers).deadline_unix_ms == heeded


@pytest.mark.parametrize("header", [b"soon", b"1.5e12", b"9" * 5_000, b"1795000000", b"\xff"])
def test_a_header_that_is_no_time_in_milliseconds_is_refused_by_name(header: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"deadline-unix-ms=.*milliseconds") as caught:
        heed_headers(request(), {"deadline-unix-ms": header})
    assert (caught.value.code, caught.value.param) == ("invalid_field", "deadline-unix-ms")
    assert len(str(caught.value)) < 200


def test_a_reply_topic_off_the_allow_list_is_refused_by_name() -> None:
    with pytest.raises(ProtocolError, match=r"'chat\.requests\.short' is not on the allow-list") as caught:
        settle(request(reply_topic="chat.requests.short"), DEFAULTS, NOW)
    assert caught.value.code == "reply_topic_not_allowed"


def test_a_missing_seed_is_derived_from_the_id() -> None:
    """FNV-1a of "a", from the reference vectors of draft-eastlake-fnv, shifted once."""
    asked = ChatRequest(id="a", session_id="s", input="x")
    assert settle(asked, DEFAULTS, NOW).seed == 0xAF63DC4C8601EC8C >> 1
    other = ChatRequest(id="b", session_id="s", input="x")
    assert settle(other, DEFAULTS, NOW).seed != settle(asked, DEFAULTS, NOW).seed


def test_headers_contain_what_a_reader_needs_without_decoding_the_value() -> None:
    order = settle(request(reply_topic="chat.replies", reply_partition=3), DEFAULTS, NOW)
    assert request_headers(_complete(order, TO_CHAMPION), source="gateway-0") == {
        "content-type": b"application/msgpack",
        "ce_id": b"r1",
        "ce_type": b"chat.request",
        "ce_source": b"gateway-0",
        "ce_specversion": b"1.0",
        "deadline-unix-ms": b"1001000",
        "reply-topic": b"chat.replies",
        "reply-partition": b"3",
    }


@given(st.integers(0, 2**192 - 1))
def test_trace_context_is_passed_on(randomness: int) -> None:
    traceparent = f"00-{randomness >> 64:032x}-{randomness % 2**64:016x}-01"
    order = settle(request(traceparent=traceparent), DEFAULTS, NOW)
    headers = request_headers(_complete(order, TO_CHAMPION), source="x")
    assert headers["traceparent"] == traceparent.encode()
    assert "reply-partition" not in headers


def test_the_defaults_are_those_of_the_settings() -> None:
    settings = Settings(kafka=KafkaSettings(topic_prefix="t."))
    defaults = settings.request_defaults
    assert defaults.reply_topics == ("t.chat.replies", "t.chat.replies.*")
    assert defaults.reply_topic == "t.chat.replies.external"
    assert settle(request(), defaults, NOW).reply_topic == "t.chat.replies.external"
    assert defaults.deadline_ms == settings.promise.deadline_ms
