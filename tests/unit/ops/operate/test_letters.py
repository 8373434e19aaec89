"""A dead letter names its origin and contains no customer text; only a repairable one is put back."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ops.operate import letters
from ops.operate.letters import (
    Letter,
    Origin,
    letter_of,
    number_of,
    page,
    parse_duration_ms,
    parse_number,
    put_back,
    refusal,
    row,
)
from shared.errors import ProtocolError
from shared.kafka import Record, TimedRecord
from shared.records.dead_letters import letter_of as write_letter
from shared.wire.topics import TopicNames
from tests.support.hostile.poison_records import POISON

NOW = 1_790_000_000_000.0
TOPICS = TopicNames("t.")
REQUESTS = {TOPICS.inbox, TOPICS.requests("short")}
CANARY = "my card is 4111-1111"
VALUE = msgspec.msgpack.encode({"type": "chat.request", "id": "r1", "session_id": "s1", "input": CANARY})


def letter(
    code: str = "internal",
    *,
    value: bytes | None = VALUE,
    key: bytes | None = b"demo/s1",
    topic: str = "t.chat.requests.short",
    whole: bool = True,
    **headers: bytes,
) -> Letter:
    """As it is read back after it was put aside."""
    given = {name.replace("_", "-").replace("ce-id", "ce_id"): header for name, header in headers.items()}
    record = Record(topic, 2, 41, key, value, given)
    out = write_letter(TOPICS, record, ProtocolError(code, "a line"), source="w", whole=whole)
    return letter_of(TimedRecord(Record(out.topic, 0, 7, out.key, out.value, out.headers), int(NOW)))


def test_a_dead_letter_is_the_record_with_its_reason_and_origin() -> None:
    kept = letter("invalid_record", deadline_unix_ms=b"5", foreign=b"x")
    assert (kept.reason, kept.detail, kept.origin) == (
        "invalid_record",
        "a line",
        Origin("t.chat.requests.short", 2, 41),
    )
    assert (kept.key, kept.value, kept.tries, kept.number) == (b"demo/s1", VALUE, 1, "7")
    assert kept.headers == {"deadline-unix-ms": b"5", "foreign": b"x"}


def test_one_that_is_too_large_is_kept_without_its_value_and_says_so() -> None:
    kept = letter("input_too_long", value=b"x" * 1_000, key=b"k" * 2_000, foreign=b"x", whole=False)
    assert (kept.value, kept.key, kept.headers, kept.left_out) == (b"", None, {}, "1000 bytes")
    assert kept.reason == "input_too_long"
    assert page(kept, text=True)["value"] == "<left out: 1000 bytes>"
    told = refusal(kept, REQUESTS, NOW, force=True)
    assert told == "its value is not stored here (1000 bytes); it is at t.chat.requests.short/2/41"


def test_one_that_could_not_be_read_points_to_its_origin() -> None:
    record = Record("t.chat.requests.short", 0, 5, None, None, unreadable="why")
    out = write_letter(TOPICS, record, ProtocolError("invalid_record", "why"), source="w")
    kept = letter_of(TimedRecord(Record("d", 0, 0, out.key, out.value, out.headers), 0))
    assert (kept.value, kept.left_out, str(kept.origin)) == (b"", "unreadable", "t.chat.requests.short/0/5")
    assert refusal(kept, REQUESTS, NOW, force=True) is not None


def test_a_reason_that_cannot_be_encoded_is_kept_all_the_same() -> None:
    record = Record("t", 0, 0, None, b"")
    out = write_letter(TOPICS, record, ProtocolError("internal", "\ud800" + "é" * 2_000), source="w")
    assert out.headers["dead-letter-detail"].decode().startswith("\\ud800é")


def test_a_record_cannot_bring_its_own_reason() -> None:
    kept = letter("invalid_record", dead_letter_reason=b"internal", dead_letter_origin=b"t.chat.requests/0/0")
    assert (kept.reason, str(kept.origin)) == ("invalid_record", "t.chat.requests.short/2/41")
    assert letter(dead_letter_left_out=b"9").left_out is None


@pytest.mark.parametrize("code", sorted(letters.HEALED_BY))
def test_what_lies_with_the_settings_is_put_back_as_it_came(code: str) -> None:
    kept = letter(code, foreign=b"x", deadline_unix_ms=str(int(NOW) + 1).encode())
    assert refusal(kept, REQUESTS, NOW, force=False) is None
    assert kept.origin is not None
    out = put_back(kept, kept.origin)
    assert (out.topic, out.partition, out.key, out.value) == ("t.chat.requests.short", 2, b"demo/s1", VALUE)
    assert out.headers == {**kept.headers, "dead-letter-replays": b"1"}


def test_a_second_dead_letter_shows_the_number_of_tries() -> None:
    once = letter(foreign=b"x")
    assert once.origin is not None
    out = put_back(once, once.origin)
    again = letter_of(
        TimedRecord(
            Record("d", 0, 8, *_written(write_letter(TOPICS, _read(out), ProtocolError("internal", "x"), source="w"))),
            0,
        )
    )
    assert (again.tries, again.headers) == (2, {"foreign": b"x"})
    assert again.origin is not None
    assert put_back(again, again.origin).headers["dead-letter-replays"] == b"2"


def _read(out: Any) -> Record:
    return Record(out.topic, out.partition, 42, out.key, out.value, out.headers)


def _written(out: Any) -> tuple[Any, Any, Any]:
    return out.key, out.value, out.headers


@pytest.mark.parametrize("code", ["invalid_record", "invalid_field", "header_mismatch", "unknown", "no such reason"])
def test_what_lies_in_the_record_is_put_back_by_force_only(code: str) -> None:
    told = refusal(letter(code), REQUESTS, NOW, force=False)
    assert told is not None
    assert told.startswith(f"{code} is in the record itself")
    assert refusal(letter(code), REQUESTS, NOW, force=True) is None


def test_one_whose_deadline_has_passed_says_so() -> None:
    kept = letter(deadline_unix_ms=str(int(NOW) - 90_000).encode())
    told = refusal(kept, REQUESTS, NOW, force=False)
    assert told == "its deadline passed 90 s ago: it would be answered as late, unread; --force puts it back"
    assert refusal(kept, REQUESTS, NOW, force=True) is None


@pytest.mark.parametrize("topic", ["payments", "t.chat.replies", "chat.requests.short", "t.chat.dead-letters"])
def test_nothing_is_put_anywhere_but_on_a_request_topic(topic: str) -> None:
    """Who can write to the dead letters could name any topic."""
    told = refusal(letter(topic=topic), REQUESTS, NOW, force=True)
    assert told == f"its origin {topic}/2/41 is not a request topic of these settings"


def test_a_dead_letter_of_somebody_elses_making_is_shown_and_never_put_back() -> None:
    kept = letter_of(TimedRecord(Record("d", 3, 9, b"\xff", None, {"dead-letter-replays": b"many"}), 0))
    assert (kept.reason, kept.origin, kept.tries, kept.number) == ("unknown", None, 1, "3/9")
    assert row(kept)["key"] == "<1 byte>"
    assert "origin is unknown" in (refusal(kept, REQUESTS, NOW, force=True) or "")


def test_every_reason_stands_in_the_documentation() -> None:
    page_of_reasons = (Path(__file__).parents[4] / "docs/dead-letters.md").read_text()
    reasons = {*letters.HEALED_BY, *(poison.reason for poison in POISON.values())}
    assert [reason for reason in sorted(reasons) if f"| `{reason}` |" not in page_of_reasons] == []


# --- what is shown

FIELDS: dict[str, Any] = {
    "type": "chat.request",
    "id": "r1",
    "session_id": "s1",
    "input": CANARY,
    "temperature": float("nan"),
    "max_output_tokens": 5,
    "metadata": {"note": CANARY},
    "stop": [CANARY],
    "reply_topic": CANARY,
    CANARY: CANARY,
    "phone": 41111111,
}
SHOWN = {
    "type": "chat.request",
    "id": "r1",
    "session_id": "s1",
    "input": "<20 characters>",
    "temperature": "nan",
    "max_output_tokens": 5,
    "metadata": "<1 field>",
    "stop": "<1 item>",
    "reply_topic": "<20 characters>",
    "…": "<2 fields unknown to chat.request>",
}


def test_what_a_customer_wrote_is_told_by_its_length() -> None:
    kept = letter(value=msgspec.msgpack.encode(FIELDS))
    assert page(kept, text=False)["value"] == SHOWN
    assert page(kept, text=True)["value"]["input"] == CANARY


@pytest.mark.parametrize(
    "value",
    [
        VALUE,
        msgspec.msgpack.encode(FIELDS),
        CANARY.encode(),
        msgspec.msgpack.encode(CANARY),
        msgspec.msgpack.encode([CANARY]),
        msgspec.msgpack.encode({CANARY: 1, "id": {"a": CANARY}, "session_id": [CANARY]}),
        json.dumps({"input": CANARY, "id": CANARY}).encode(),
        b'{"input":"' + CANARY.encode(),
    ],
)
@pytest.mark.parametrize("content_type", [b"application/json", b"application/msgpack", CANARY.encode(), b"\xff"])
def test_no_word_of_the_customer_is_shown_unasked(value: bytes, content_type: bytes) -> None:
    """The record may have any form, and the words may be anywhere in it."""
    headers = {"content-type": content_type, "input": CANARY.encode(), CANARY: b"x", "ce_id": CANARY.encode() + b"!"}
    record = Record("t.chat.requests.short", 0, 1, CANARY.encode(), value, headers)
    out = write_letter(TOPICS, record, ProtocolError("invalid_record", "a line"), source="w")
    kept = letter_of(TimedRecord(Record("d", 0, 1, out.key, out.value, out.headers), 0))
    shown = letters.as_json([row(kept), page(kept, text=False)])
    assert "4111" not in shown


@given(
    st.none()
    | st.binary(max_size=40)
    | st.recursive(st.none() | st.text() | st.floats(), st.lists, max_leaves=5).map(msgspec.msgpack.encode),
    st.none() | st.binary(max_size=20),
    st.dictionaries(
        st.sampled_from(["content-type", "dead-letter-origin", "dead-letter-reason", "dead-letter-replays", "\x1b[2J"]),
        st.binary(max_size=30) | st.just(b"application/json"),
    ),
    st.booleans(),
)
def test_whatever_stands_there_is_shown_as_json_that_no_terminal_acts_on(
    value: bytes | None, key: bytes | None, headers: dict[str, bytes], text: bool
) -> None:
    kept = letter_of(TimedRecord(Record("d", 0, 1, key, value, headers), 1_790_000_000_000))
    refusal(kept, REQUESTS, NOW, force=False)
    shown = letters.as_json(page(kept, text=text), indent=2)
    assert json.loads(shown)["number"] == "1"
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_a_deep_value_is_shown_as_deep_as_anyone_reads() -> None:
    kept = letter(value=b"\x91" * 500 + b"\x01")
    assert letters.as_json(page(kept, text=True)["value"]).count("[") == 8
    assert page(kept, text=False)["value"] == "<1 item>"


@pytest.mark.parametrize("forged", ["\x1b[2J", "\x9b31m", "\u202egnp.exe", "a\rb", "\x07"])
def test_escapes_do_not_reach_the_terminal(forged: str) -> None:
    assert letters.printable(forged).isprintable()
    console = Console(force_terminal=True)
    with console.capture() as capture:
        console.print(letters.printable(forged), markup=False, highlight=False)
    assert forged not in capture.get()


@pytest.mark.parametrize(
    ("text", "place"),
    [("17", (0, 17)), ("2/17", (2, 17)), ("x", None), ("", None), ("-1", None), ("1/2/3", None), ("²", None)],
)
def test_a_number_is_an_offset_with_its_partition_where_there_are_several(
    text: str, place: tuple[int, int] | None
) -> None:
    assert parse_number(text) == place
    assert place is None or parse_number(number_of(*place)) == place


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000), ("7", None), ("1w", None)],
)
def test_a_duration_has_its_unit(text: str, ms: int | None) -> None:
    assert parse_duration_ms(text) == ms
