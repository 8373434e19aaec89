"""Buffered messages for a client keep their order, lose nothing, and restart when an answer is sent again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.cursor import CursorKey, ResumePoint, checksum
from gateway.request.outbox import Opened, Outbox, Shown
from shared.wire.messages import Ping, ResponseCreated, ResponseDelta, ResponseDone, ServerMessage
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey
from tests.support.builders import gateway as builders

SEAL = CursorKey(b"secret").seal(SessionKey("t", "s"))
NAMES = {letter: f"resp_{number:024x}" for number, letter in enumerate("rabc")}


def outbox() -> Outbox:
    empty = Outbox()
    empty.start_session(SEAL, (), 0.0)
    return empty


def told(text: str = "", *, seq: int = 0, letter: str = "r") -> ResumePoint:
    """This many characters of an answer were sent, in this many deltas."""
    return builders.told(
        digest=bytes.fromhex(NAMES[letter].removeprefix("resp_")), seq=seq, chars=len(text), crc=checksum(text)
    )


def opened(letter: str = "r") -> Opened:
    return Opened(ResponseCreated(response_id=NAMES[letter], event_id="e", bucket="short"), told(letter=letter), 0.0)


def shown(offset: int, text: str, letter: str = "r") -> Shown:
    return Shown(NAMES[letter], offset, text)


def ended(text: str, letter: str = "r") -> Response:
    return builders.answer(NAMES[letter], text)


def brief(messages: list[ServerMessage]) -> list[object]:
    """Return each message as a letter with its text, without its cursor."""
    letters = {name: letter for letter, name in NAMES.items()}
    said: list[object] = []
    for message in messages:
        if isinstance(message, ResponseCreated):
            said.append(letters[message.response_id])
        elif isinstance(message, ResponseDelta):
            said.append((letters[message.response_id], message.seq, message.offset, message.delta))
        elif isinstance(message, ResponseDone):
            said.append((letters[message.response.id], message.response.output_text))
        else:
            said.append(message)
    return said


def taken(*items: ServerMessage | Opened | Shown | Response) -> list[object]:
    box = outbox()
    for item in items:
        box.put(item)
    return brief(box.drain(0.0))


def cursors(messages: list[ServerMessage]) -> list[list[ResumePoint] | None]:
    return [SEAL.read(getattr(message, "cursor", None) or "") for message in messages]


def test_deltas_that_wait_are_merged_into_one() -> None:
    box = outbox()
    for item in (opened(), shown(0, "He"), shown(2, "y "), shown(4, "you")):
        box.put(item)
    assert (box.merged, box.size_chars) == (2, 7)
    assert brief(box.drain(0.0)) == ["r", ("r", 0, 0, "Hey you")]
    assert not box
    assert box.size_chars == 0


def test_answers_do_not_mix_and_other_messages_keep_their_place() -> None:
    items = (opened("a"), opened("b"), shown(0, "1", "a"), Ping(), shown(0, "2", "b"), shown(1, "3", "a"))
    assert taken(*items) == ["a", "b", ("a", 0, 0, "13"), Ping(), ("b", 0, 0, "2")]


def test_a_restarted_answer_restarts_even_while_its_text_is_buffered() -> None:
    """A slow client repeats its event: the buffered text belongs to the first sending."""
    items = (opened(), shown(0, "ab"), opened(), shown(0, "ab"), shown(2, "c"), ended("abc"))
    assert taken(*items) == ["r", ("r", 0, 0, "ab"), "r", ("r", 0, 0, "abc"), ("r", "abc")]


def test_an_end_is_sent_to_a_client_that_got_nothing_of_its_answer() -> None:
    assert taken(ended("abc")) == [("r", "abc")]


@pytest.mark.parametrize("waiting", [(), (shown(2, "y "),)])
def test_an_end_is_sent_after_the_text_that_a_fault_had_delayed(waiting: tuple[Shown, ...]) -> None:
    box = outbox()
    for item in (opened(), shown(0, "He")):
        box.put(item)
    box.drain(0.0)
    for item in (*waiting, ended("Hey you")):
        box.put(item)
    assert brief(box.drain(0.0)) == [("r", 1, 2, "y you"), ("r", "Hey you")]


def test_each_cursor_has_the_sent_position_of_every_open_answer() -> None:
    box = outbox()
    for item in (opened("a"), shown(0, "xy", "a"), opened("b"), shown(0, "z", "b")):
        box.put(item)
    first = box.drain(0.0)
    for item in (shown(2, "!", "a"), ended("xy!", "a"), ended("z", "b")):
        box.put(item)
    assert cursors([*first, *box.drain(0.0)]) == [
        [told(letter="a")],
        [told("xy", seq=1, letter="a")],
        [told("xy", seq=1, letter="a"), told(letter="b")],
        [told("xy", seq=1, letter="a"), told("z", seq=1, letter="b")],
        [told("xy!", seq=2, letter="a"), told("z", seq=1, letter="b")],
        [told("z", seq=1, letter="b")],
        [],
    ]


def test_a_returning_client_continues_at_its_position() -> None:
    box = Outbox()
    box.start_session(SEAL, [told("xy", seq=1, letter="a"), told("z", seq=1, letter="b")], 0.0)
    box.put(shown(2, "!", "a"))
    box.put(ended("z", "b"))
    messages = box.drain(0.0)
    assert brief(messages) == [("a", 1, 2, "!"), ("b", "z")]
    assert cursors(messages) == [
        [told("xy!", seq=2, letter="a"), told("z", seq=1, letter="b")],
        [told("xy!", seq=2, letter="a")],
    ]


def test_nothing_of_a_detached_answer_is_sent_and_others_keep_their_place() -> None:
    box = outbox()
    waiting = (opened("a"), opened("b"), shown(0, "12", "a"), shown(0, "3", "b"), ended("12", "a"), shown(1, "4", "b"))
    for item in (*waiting, ended("34", "b")):
        box.put(item)
    assert (box.size_chars, bool(box)) == (8, True)
    box.drop_answer(NAMES["a"])
    assert box.size_chars == 4
    messages = box.drain(0.0)
    assert brief(messages) == ["b", ("b", 0, 0, "34"), ("b", "34")]
    assert cursors(messages) == [[told(letter="b")], [told("34", seq=1, letter="b")], []]


def test_a_cursor_has_the_age_of_its_answers() -> None:
    """This includes answers that the client returned with, by their age at that time."""
    box = Outbox()
    known = told(letter="a")
    known.age_ms = 300
    box.start_session(SEAL, [known], 1_000.0)
    box.put(Opened(ResponseCreated(response_id=NAMES["b"], event_id="e", bucket="short"), told(letter="b"), 1_100.0))
    (message,) = box.drain(1_250.9)
    assert [[each.age_ms for each in told_ or ()] for told_ in cursors([message])] == [[550, 150]]


PIECES = st.lists(
    st.tuples(st.sampled_from("abc"), st.text("xy你", min_size=1, max_size=3), st.booleans()), max_size=30
)


@given(PIECES)
def test_each_text_arrives_complete_and_in_order_whenever_it_is_flushed(pieces: list[tuple[str, str, bool]]) -> None:
    box, said, got, seqs = outbox(), dict.fromkeys("abc", ""), dict.fromkeys("abc", ""), dict.fromkeys("abc", 0)
    letters = {name: letter for letter, name in NAMES.items()}
    for letter in "abc":
        box.put(opened(letter))

    def write() -> None:
        for message in box.drain(0.0):
            if isinstance(message, ResponseDelta):
                letter = letters[message.response_id]
                assert (message.seq, message.offset) == (seqs[letter], len(got[letter]))
                got[letter] += message.delta
                seqs[letter] += 1
                open_ = SEAL.read(message.cursor)
                assert open_ is not None
                assert told(got[letter], seq=seqs[letter], letter=letter) in open_

    for letter, text, written in pieces:
        box.put(shown(len(said[letter]), text, letter))
        said[letter] += text
        assert box.size_chars == sum(map(len, said.values())) - sum(map(len, got.values()))
        if written:
            write()
    write()
    assert got == said


def test_nothing_is_stored_of_an_ended_or_moved_answer() -> None:
    box = outbox()
    for end in (lambda: box.put(ended("hi")), lambda: box.drop_answer(NAMES["r"])):
        box.put(opened())
        box.put(shown(0, "hi"))
        box.drain(0.0)
        end()
        box.drain(0.0)
        assert (box._points, box._received_unix_ms) == ({}, {})
