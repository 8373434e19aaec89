"""A cursor gives a client's position, to gateways with the key and for the session it was written for."""

from base64 import urlsafe_b64encode
from typing import Any

import pytest
from annotated_types import Le
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.request.cursor import (
    CursorKey,
    Place,
    ResumePoint,
    Seal,
    checksum,
)
from gateway.request.entry import response_id
from shared.settings.gateway import GatewaySettings
from shared.wire.deadline import RESUMABLE_MS
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import told

KEY = CursorKey(b"secret")
SEAL = KEY.seal(SessionKey("t", "s"))

COUNTS = st.integers(0, 2**53 - 1)
PLACES = st.none() | st.builds(Place, partition=COUNTS, offset=COUNTS)
TOLD = st.builds(
    ResumePoint,
    digest=st.binary(min_size=12, max_size=12),
    event_id=st.text("abcAB09_.:-", min_size=1, max_size=64),
    bucket=st.sampled_from(["short", "medium", "long"]),
    received_unix_ms=COUNTS,
    first_token_ms=st.integers(-1_000, 600_000),
    deadline_ms=st.integers(-1_000, 600_000),
    log=PLACES,
    place=PLACES,
    seq=COUNTS,
    chars=COUNTS,
    crc=st.integers(0, 2**32 - 1),
    trace=st.none() | st.binary(min_size=24, max_size=24),
    generation=COUNTS,
    age_ms=COUNTS,
)
OPEN = st.lists(TOLD, max_size=4)
NAMES = st.text("ab/:.-", max_size=3)
SESSIONS = st.builds(SessionKey, NAMES, NAMES)


@given(OPEN)
def test_a_cursor_decodes_to_what_was_encoded(open_: list[ResumePoint]) -> None:
    assert SEAL.read(SEAL.write(open_)) == open_


def longest(number: int) -> ResumePoint:
    """Return an answer with every field at its maximum length."""
    counts = dict.fromkeys(("received_unix_ms", "seq", "chars", "generation", "age_ms"), 2**53 - 1)
    waits = dict.fromkeys(("first_token_ms", "deadline_ms"), 2**31)
    places = dict.fromkeys(("log", "place"), Place(2**53 - 1, 2**53 - 1))
    names: dict[str, Any] = {"digest": number.to_bytes(12), "event_id": "e" * 64, "bucket": "medium"}
    return told(**counts, **waits, **places, **names, crc=2**32 - 1, trace=bytes(24))


@given(TOLD)
def test_no_answer_takes_more_of_a_cursor_than_the_longest(each: ResumePoint) -> None:
    assert len(SEAL.write([each])) <= len(SEAL.write([longest(0)]))


def test_a_cursor_of_as_many_open_answers_as_a_connection_may_have_is_read() -> None:
    """This holds for fields of any length; otherwise a client that lost its socket could not resume,
    without an error.
    """
    bounds = GatewaySettings.model_fields["max_inflight_per_connection"].metadata
    (most,) = [bound.le for bound in bounds if isinstance(bound, Le)]
    assert isinstance(most, int)
    open_ = [longest(number) for number in range(most)]
    assert SEAL.read(SEAL.write(open_)) == open_


@given(OPEN, st.data())
def test_a_changed_cursor_is_refused(open_: list[ResumePoint], data: st.DataObject) -> None:
    """Any character may be changed, missing or added."""
    cursor = SEAL.write(open_)
    at = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda char: char != cursor[at]))
    assert SEAL.read(cursor[:at] + other + cursor[at + 1 :]) is None
    assert SEAL.read(cursor[:at] + cursor[at + 1 :]) is None
    assert SEAL.read(cursor[:at] + other + cursor[at:]) is None


@given(SESSIONS, SESSIONS)
@example(SessionKey("a", "bc"), SessionKey("ab", "c"))
def test_a_cursor_is_valid_for_its_own_session_only(mine: SessionKey, other: SessionKey) -> None:
    cursor = KEY.seal(mine).write([told()])
    assert (KEY.seal(other).read(cursor) is not None) == (mine == other)


@pytest.mark.parametrize(
    "cursor",
    [
        CursorKey(b"other").seal(SessionKey("t", "s")).write([told()]),
        *("", "resp_1@12", "====", "a", "é", "\x00", "A" * 24, "A" * 1_000_000, "kA=="),
    ],
)
def test_an_invalid_cursor_or_one_with_another_secret_is_refused(cursor: str) -> None:
    assert SEAL.read(cursor) is None


def test_a_cursor_of_another_version_is_refused() -> None:
    """Its signature is right: the gateways are being replaced one by one."""
    assert SEAL.read(sealed(SEAL, b"\x92\x01\x90")) == []
    for body in (b"\x92\x02\x90", b"\x92\x01\x91\x90", b"\xc1"):
        assert SEAL.read(sealed(SEAL, body)) is None


def sealed(seal: Seal, body: bytes) -> str:
    mac = seal._mac.copy()
    mac.update(body)
    return urlsafe_b64encode(body + mac.digest()).decode()


def test_an_answer_is_resumable_until_two_minutes_after_its_deadline() -> None:
    each = told(received_unix_ms=5_000, deadline_ms=1_000)
    assert each.resumable(6_000 + RESUMABLE_MS)
    assert not each.resumable(6_000 + RESUMABLE_MS + 1)


@pytest.mark.parametrize(
    ("wire", "age", "elapsed"),
    [(7_000.0, None, 2_000), (5_100.0, None, 300), (0.0, None, 300), (0.0, 40, 340), (9e9, 0, 300)],
)
def test_a_clients_cursor_decides_the_age_of_an_answer(wire: float, age: int | None, elapsed: int) -> None:
    """The clocks of two gateways may say anything, but that no time has passed since the cursor was written."""
    each = told(received_unix_ms=5_000, age_ms=300)
    assert each.elapsed_ms(wire, age) == elapsed


@given(st.lists(st.text(max_size=5)))
def test_positions_add_up(pieces: list[str]) -> None:
    each = told()
    for piece in pieces:
        each.add_text(piece)
    text = "".join(pieces)
    assert (each.seq, each.chars, each.crc) == (len(pieces), len(text), checksum(text))


def test_a_response_has_the_same_id_at_every_gateway_and_no_other_has_it() -> None:
    names = (SessionKey("t", "s"), "e", "Where is it?")
    assert response_id(*names) == response_id(*names)
    digest = bytes.fromhex(response_id(*names).removeprefix("resp_"))
    assert told(digest=digest).response_id == response_id(*names)
    others = [("x", "s", "e", ""), ("t", "x", "e", ""), ("t", "s", "x", ""), ("t", "s", "e", "x")]
    named = [response_id(SessionKey(t, s), e, f"Where is it?{more}") for t, s, e, more in others]
    assert len({response_id(*names), *named}) == 5


@given(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1))
def test_a_response_has_another_id_in_each_generation(one: int, other: int) -> None:
    names = (SessionKey("t", "s"), "e", "Where is it?")
    assert (response_id(*names, one) == response_id(*names, other)) == (one == other)


def test_a_response_keeps_its_id_across_versions() -> None:
    """A client repeats its event while the gateways are being replaced."""
    assert response_id(SessionKey("demo", "sess_1"), "ev_1", "Hi") == "resp_cae08506d47e6d3de1d8f1dc"
    assert response_id(SessionKey("demo", "sess_1"), "ev_1", "Hi", 7) == "resp_bccf334097424501972c5e99"


def test_a_cursor_is_read_from_version_to_version() -> None:
    """A client reconnects with it while the gateways are being replaced."""
    cursor = "kgGRnsQMAAAAAAAAAAAAAAAAoWWlc2hvcnQAzMjNA-iSAQfAAAAAwAAAWSDF0cstFeWvBaYEPicEQg=="
    assert SEAL.read(cursor) == [told(log=Place(1, 7))]
    newer = "kgGRn8QMAAAAAAAAAAAAAAAAoWWlc2hvcnQAzMjNA-iSAQfAAAAAwAAAAAfqeF3XC3OXN-a6MWG1vDA="
    assert SEAL.write([told(log=Place(1, 7))]) == newer
