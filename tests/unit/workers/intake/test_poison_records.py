"""An invalid or contradictory record is refused with a reason, and has no other effect."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.destination.destination import TO_CHAMPION
from gateway.forwarding.router import _complete
from shared.errors import ProtocolError
from shared.kafka import Record
from shared.records.dead_letters import letter_of
from shared.settings import Settings
from shared.wire.cloud_events import request_headers
from shared.wire.codec import json_encode, msgpack_encode
from shared.wire.fields import Identifier
from shared.wire.headers import header_of, number_of, text_of
from shared.wire.messages import ChatRequest
from shared.wire.requests import Order, open_request, settle
from shared.wire.topics import TopicNames, reply_topic_allowed
from tests.support.hostile.message_strategies import any_of
from tests.support.hostile.poison_records import FORGED, POISON, SLOPPY, TENANTS, fields, packed
from tests.support.samples import request_defaults
from tests.unit.examples import examples
from workers.intake.triage import Late, Triage, TriageDecision

NOW = 1_790_000_000_000.5
DEFAULTS = replace(request_defaults.DEFAULTS, tenants=TENANTS)
TRIAGE = Triage("chat.replies", DEFAULTS.reply_topics)


def order_of(value: bytes | None, headers: Mapping[str, bytes]) -> Order:
    """What a worker and the router make of a record. Raises `ProtocolError`."""
    return settle(open_request(value, headers), DEFAULTS, NOW)


@pytest.mark.parametrize("what", POISON)
def test_poison_becomes_one_dead_letter_with_its_reason(what: str) -> None:
    """In one line, short enough to be stored, with the record's own bytes."""
    poison = POISON[what]
    with pytest.raises(ProtocolError) as caught:
        order_of(poison.value, poison.headers)
    assert caught.value.code == poison.reason
    record = Record("chat.requests", 0, 7, b"k", poison.value, poison.headers)
    letter = letter_of(TopicNames(), record, caught.value, source="w")
    detail = letter.headers["dead-letter-detail"].decode()
    assert detail
    assert "\n" not in detail
    assert len(detail) <= 500
    assert (letter.value, letter.key) == (poison.value, b"k")
    assert poison.headers.items() <= letter.headers.items()


@pytest.mark.parametrize("what", SLOPPY)
def test_what_another_serializer_writes_is_served(what: str) -> None:
    """At the inbox and at a worker alike, and what the router writes of it is read by the strict decoder."""
    sloppy = SLOPPY[what]
    order = order_of(sloppy.value, sloppy.headers)
    routed = msgpack_encode(_complete(order, TO_CHAMPION))
    assert msgspec.msgpack.decode(routed, type=ChatRequest).input.isprintable() or "\n" in order.request.input


@pytest.mark.parametrize("what", POISON)
def test_what_is_wrong_with_a_late_record_settles_nothing_by_its_headers(what: str) -> None:
    """Unread it may be answered only as what it says it is, where answers may go."""
    poison = POISON[what]
    headers = {"deadline-unix-ms": b"1700000000000", "reply-topic": b"chat.replies.crm", "ce_id": b"r1"}
    fate = TRIAGE.classify(headers | poison.headers, b"demo/s1", NOW)
    if isinstance(fate, Late):
        msgspec.convert(fate.done.request_id, Identifier)
        assert reply_topic_allowed(fate.topic, DEFAULTS.reply_topics)


def test_a_good_record_is_served() -> None:
    """The control: what the corpus is made from. By default every tenant may be named."""
    for tenant in ("demo", "shop.a", "shop.b.c"):
        assert order_of(packed(tenant=tenant), {}).tenant == tenant
    assert settle(open_request(packed(tenant="rival"), {}), Settings().request_defaults, NOW).tenant == "rival"
    order = order_of(packed(), {})
    assert (order.tenant, order.request.id, order.reply_topic) == ("demo", "r1", "chat.replies.external")


def test_the_tenant_of_records_that_name_none_is_checked_like_any() -> None:
    with pytest.raises(ProtocolError, match="'demo' is not on the allow-list"):
        settle(open_request(packed(), {}), replace(DEFAULTS, tenants=("shop.*",)), NOW)


def test_a_reply_topic_that_only_the_header_names_is_where_the_answer_goes() -> None:
    """As it goes where the record is late and never opened."""
    order = order_of(packed(), {"reply-topic": b"chat.replies.crm", "reply-partition": b"3"})
    assert (order.reply_topic, order.reply_partition) == ("chat.replies.crm", 3)


def test_a_record_that_could_not_be_read_is_refused_with_that_reason() -> None:
    with pytest.raises(ProtocolError, match="not UTF-8") as caught:
        open_request(None, {}, unreadable="a header's name is not UTF-8")
    assert caught.value.code == "invalid_record"


HEADERS = st.dictionaries(
    st.sampled_from(
        ["ce_id", "ce_type", "content-type", "deadline-unix-ms", "reply-topic", "reply-partition", "traceparent", "x"]
    ),
    st.binary(max_size=12)
    | st.sampled_from([b"r1", b"chat.request", b"chat.replies", b"chat.replies.crm", b"application/json", b"3"])
    | st.integers(0, 2**60).map(lambda number: str(number).encode()),
)


def outcome(value: bytes, headers: Mapping[str, bytes]) -> Order | str:
    """The order, or one of the reasons that the corpus knows."""
    try:
        return order_of(value, headers)
    except ProtocolError as error:
        code = error.code
    assert code in {poison.reason for poison in POISON.values()}
    return code


def agree(order: Order, headers: Mapping[str, bytes]) -> None:
    """Nothing is accepted that contradicts its header."""
    assert text_of(headers, "ce_id") in {None, order.request.id}
    assert text_of(headers, "ce_type") in {None, "chat.request"}
    assert text_of(headers, "reply-topic") in {None, "", order.reply_topic}
    if header_of(headers, "reply-partition") is not None:
        assert number_of(headers, "reply-partition") == order.reply_partition
    if header_of(headers, "deadline-unix-ms") is not None:
        deadline = number_of(headers, "deadline-unix-ms")
        assert deadline is not None
        assert order.deadline.deadline_unix_ms <= deadline
    assert reply_topic_allowed(order.reply_topic, DEFAULTS.reply_topics)
    assert order.tenant == "demo" or order.tenant.startswith("shop.")
    assert "/" not in order.tenant + order.request.session_id


@given(any_of(ChatRequest), HEADERS, st.booleans())
@settings(max_examples=examples(500))
def test_whatever_the_headers_say_a_record_is_refused_or_agrees_with_them(
    asked: ChatRequest, headers: dict[str, bytes], as_json: bool
) -> None:
    """What is accepted is written on by the router in a form that is accepted again, with the same meaning."""
    asked = msgspec.structs.replace(asked, tenant=None)
    if as_json:
        headers = headers | {"content-type": b"application/json"}
    order = outcome((json_encode if as_json else msgpack_encode)(asked), headers)
    if not isinstance(order, Order):
        return
    agree(order, headers)
    complete = _complete(order, TO_CHAMPION)
    again = order_of(msgpack_encode(complete), {**headers, **request_headers(complete, source="router")})
    assert (again.request.id, again.reply_topic, again.reply_partition, again.tenant) == (
        order.request.id,
        order.reply_topic,
        order.reply_partition,
        order.tenant,
    )


@given(
    st.sampled_from([msgpack_encode, json_encode]),
    st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from("fix"), st.binary(min_size=1, max_size=8)), max_size=4),
)
@settings(max_examples=examples(1_000))
def test_a_damaged_record_is_refused_or_served_and_nothing_else(
    encode: object, damage: list[tuple[int, str, bytes]]
) -> None:
    """Bytes flipped, put in, or cut out."""
    request = msgspec.convert(fields(metadata={"a": "b"}, stop=["x"], tenant="shop.a", traceparent=None), ChatRequest)
    value = bytearray(encode(request))  # type: ignore[operator]
    for place, how, data in damage:
        at = place % (len(value) + 1)
        value[at : at + (0 if how == "i" else len(data))] = b"" if how == "x" else data
    headers = {"content-type": b"application/json"} if encode is json_encode else {}
    order = outcome(bytes(value), headers)
    if isinstance(order, Order):
        agree(order, headers)


@given(
    HEADERS,
    st.none() | st.binary(max_size=30) | st.sampled_from([b"demo/s1", b"demo/a b", b"x" * 10 + b"/" + b"y" * 65]),
)
@settings(max_examples=examples(1_000))
def test_unread_it_is_answered_as_what_readers_of_replies_rely_on(headers: dict[str, bytes], key: bytes | None) -> None:
    fate = TRIAGE.classify(headers | {"deadline-unix-ms": b"1700000000000"}, key, NOW)
    if fate is TriageDecision.OPEN or fate is TriageDecision.SKIP:
        return
    assert isinstance(fate, Late)
    assert msgspec.convert(fate.done.request_id, Identifier) == text_of(headers, "ce_id")
    assert fate.done.session_id == "" or msgspec.convert(fate.done.session_id, Identifier)
    assert reply_topic_allowed(fate.topic, DEFAULTS.reply_topics)


def test_every_header_that_is_heeded_is_forged_in_the_corpus() -> None:
    forged = {name for poison in FORGED.values() for name in poison.headers}
    assert forged == {"ce_id", "ce_type", "deadline-unix-ms", "reply-partition", "reply-topic"}
