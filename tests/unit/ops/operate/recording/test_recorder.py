"""A recording keeps the texts only of customers who have consented, and no names."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.operate.recording.recorder import Recorder
from shared.kafka.broker.records import Record
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest, Consent, Forgotten
from shared.wire.session_key import SessionKey
from tests.support.hostile.message_strategies import any_of
from tests.support.samples.request_defaults import DEFAULTS

NOW = 1_800_000_000_000.0
YES = Consent(training=True)


def recorder(key: bytes = b"k" * 32) -> Recorder:
    return Recorder(defaults=DEFAULTS, count=len, key=key)


def request(number: int = 0, **changed: Any) -> ChatRequest:
    fields = {"id": f"r{number}", "session_id": "s", "input": "where is it", "created_unix_ms": int(NOW)}
    return ChatRequest(**{**fields, **changed})


def record(message: Any, arrived_unix_ms: float | None = NOW, **changed: Any) -> Record:
    arrived = None if arrived_unix_ms is None else int(arrived_unix_ms)
    return Record("t", 0, 0, None, msgpack_encode(message), arrived_unix_ms=arrived, **changed)


def test_a_request_is_its_time_its_lengths_its_options_and_its_deadlines() -> None:
    """Times count from the first arrival, deadlines from the request's own creation."""
    ours = recorder()
    ours.asked(record(request()), "short", NOW)
    made = request(
        1, created_unix_ms=int(NOW) + 100, first_token_unix_ms=int(NOW) + 300, deadline_unix_ms=int(NOW) + 900,
        max_output_tokens=9, temperature=0.5, top_p=0.9, consent=YES, stop=("x",),
    )  # fmt: skip
    kept = ours.asked(record(made, NOW + 150), "long", NOW + 999)
    assert kept is not None
    assert (kept.at_ms, kept.bucket, kept.first_token_ms, kept.deadline_ms) == (150.0, "long", 200, 800)
    assert (kept.max_output_tokens, kept.temperature, kept.top_p, kept.stop) == (9, 0.5, 0.9, ("x",))
    assert (kept.input_tokens, kept.text) == (len("where is it"), "where is it")


def test_what_a_request_leaves_open_is_as_the_settings_have_it() -> None:
    kept = recorder().asked(record(request()), "short", NOW)
    assert kept is not None
    assert (kept.first_token_ms, kept.deadline_ms) == (DEFAULTS.first_token_ms, DEFAULTS.deadline_ms)
    assert kept.max_output_tokens == DEFAULTS.output_tokens


@pytest.mark.parametrize("consent", [None, Consent()], ids=["nothing said", "said no"])
def test_without_consent_there_are_lengths_and_no_words(consent: Consent | None) -> None:
    secret = request(input="my name is Alice", stop=("Alice",), metadata={"who": "Alice"}, consent=consent)
    kept = recorder().asked(record(secret), "short", NOW)
    assert kept is not None
    assert (kept.text, kept.stop, kept.input_tokens) == (None, (), 16)
    assert b"Alice" not in msgspec.json.encode(kept)


@given(any_of(ChatRequest))
def test_nobody_is_named_and_no_unasked_word_is_kept(made: ChatRequest) -> None:
    """Neither ids nor metadata nor traces; of a text nothing but where it was consented to."""
    marked = msgspec.structs.replace(
        made,
        id="idMARK",
        session_id="sessionMARK",
        tenant="tenantMARK",
        metadata={"MARK": "MARK"},
        input="MARK " + made.input,
        stop=("MARK",),
        reply_topic=None,
        reply_partition=0,
        created_unix_ms=int(NOW),
        deadline_unix_ms=None,
        first_token_unix_ms=None,
    )
    kept = recorder().asked(record(marked), "short", NOW)
    assert kept is not None
    consented = made.consent is not None and made.consent.training
    assert msgspec.json.encode(kept).count(b"MARK") == 2 * consented  # its words, and where they are to stop


def test_hashes_tell_sessions_apart_and_recordings_share_none() -> None:
    ours = recorder()
    kept = [
        ours.asked(record(request(number, session_id=session, tenant=tenant)), "short", NOW)
        for number, (tenant, session) in enumerate([("a", "s"), ("a", "s"), ("a", "t"), ("b", "s")])
    ]
    sessions = [one.session for one in kept if one is not None]
    tenants = [one.tenant for one in kept if one is not None]
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 3
    assert tenants[0] == tenants[2] != tenants[3]
    other = recorder(b"j" * 32).asked(record(request(tenant="a")), "short", NOW)
    assert other is not None
    assert other.session not in sessions


def test_what_nobody_could_read_is_counted_and_left_out() -> None:
    ours = recorder()
    refused = [
        Record("t", 0, 0, None, b"\xff"),
        Record("t", 0, 0, None, None),
        Record("t", 0, 0, None, None, unreadable="a header's name"),
        record(request(), headers={"ce_id": b"another"}),
    ]
    assert [ours.asked(one, "short", NOW) for one in refused] == [None] * 4
    assert (ours.requests, ours.unreadable) == (0, 4)


@given(st.lists(st.integers(-50, 50), max_size=20))
def test_a_record_that_is_read_late_is_not_before_the_beginning(offsets: list[int]) -> None:
    ours = recorder()
    for number, offset in enumerate(offsets):
        kept = ours.asked(record(request(number), NOW + offset), "short", NOW)
        assert kept is not None
        assert kept.at_ms == max(0, offset - offsets[0])


def test_where_the_topic_has_no_clock_the_readers_counts() -> None:
    ours = recorder()
    kept = [ours.asked(record(request(number), None), "short", NOW + 70 * number) for number in range(2)]
    assert [one.at_ms for one in kept if one] == [0.0, 70.0]


def test_an_erasure_takes_the_words_of_earlier_requests_of_that_conversation_alone() -> None:
    ours = recorder()
    person, another = (SessionKey(DEFAULTS.tenant, session).digest for session in ("s", "another"))
    assert not ours.forget(Forgotten(person=person, unix_ms=int(NOW))), "nothing of it is written yet"
    kept = [
        ours.asked(record(request(consent=YES), NOW - 1), "short", NOW),
        ours.asked(record(request(consent=YES, session_id="another"), NOW - 1), "short", NOW),
        ours.asked(record(request(consent=YES), NOW + 60_000), "short", NOW),
    ]
    assert [(each.text is not None, each.person) for each in kept if each is not None] == [
        (False, None),
        (True, another),
        (True, person),
    ]
    assert ours.forget(Forgotten(person=person, unix_ms=int(NOW) + 70_000))
