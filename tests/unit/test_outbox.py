"""What waits for a client keeps its order, loses nothing, and is told from its beginning when it is told again."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.outbox import Outbox, Shown, cursor
from shared.messages import (
    Ping,
    Response,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    Timings,
    Usage,
)


def created(response_id: str = "r") -> ResponseCreated:
    return ResponseCreated(response_id=response_id, event_id="e", bucket="short")


def done(text: str, response_id: str = "r") -> ResponseDone:
    response = Response(
        id=response_id,
        status="completed",
        reason="stop",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
    )
    return ResponseDone(response=response, cursor=cursor(response_id, len(text)))


def delta(seq: int, offset: int, text: str, response_id: str = "r") -> ResponseDelta:
    return ResponseDelta(
        response_id=response_id, seq=seq, offset=offset, delta=text, cursor=cursor(response_id, offset + len(text))
    )


def taken(*items: ServerMessage | Shown) -> list[ServerMessage]:
    outbox = Outbox()
    for item in items:
        outbox.put(item)
    return outbox.take()


def test_deltas_that_wait_are_merged_into_one() -> None:
    outbox = Outbox()
    for item in (created(), Shown("r", 0, "He"), Shown("r", 2, "y "), Shown("r", 4, "you")):
        outbox.put(item)
    assert (outbox.merged, outbox.size_chars) == (2, 7)
    assert outbox.take() == [created(), delta(0, 0, "Hey you")]
    assert not outbox
    assert outbox.size_chars == 0


def test_numbers_have_no_gap_across_writes() -> None:
    outbox = Outbox()
    outbox.put(created())
    messages = []
    for offset, text in enumerate("abc"):
        outbox.put(Shown("r", offset, text))
        messages += outbox.take()
    outbox.put(done("abc"))
    assert [*messages, *outbox.take()] == [
        created(),
        delta(0, 0, "a"),
        delta(1, 1, "b"),
        delta(2, 2, "c"),
        done("abc"),
    ]


def test_answers_do_not_mix_and_other_messages_keep_their_place() -> None:
    assert taken(created("a"), created("b"), Shown("a", 0, "1"), Ping(), Shown("b", 0, "2"), Shown("a", 1, "3")) == [
        created("a"),
        created("b"),
        delta(0, 0, "13", "a"),
        Ping(),
        delta(0, 0, "2", "b"),
    ]


def test_an_answer_that_is_told_again_begins_anew_even_while_its_text_waits() -> None:
    """A slow client repeats its event: the text that still waits belongs to the first telling."""
    assert taken(created(), Shown("r", 0, "ab"), created(), Shown("r", 0, "ab"), Shown("r", 2, "c"), done("abc")) == [
        created(),
        delta(0, 0, "ab"),
        created(),
        delta(0, 0, "abc"),
        done("abc"),
    ]


def test_what_waits_counts_the_text_that_is_to_be_written() -> None:
    outbox = Outbox()
    outbox.put(Shown("r", 0, "ab"))
    outbox.put(done("ab"))
    assert outbox.size_chars == 4
    assert bool(outbox)


PIECES = st.lists(
    st.tuples(st.sampled_from("abc"), st.text("xy你", min_size=1, max_size=3), st.booleans()), max_size=30
)


@given(PIECES)
def test_whenever_it_is_written_each_text_arrives_whole_and_in_order(pieces: list[tuple[str, str, bool]]) -> None:
    outbox, said, got, seqs = Outbox(), dict.fromkeys("abc", ""), dict.fromkeys("abc", ""), dict.fromkeys("abc", 0)
    for name in "abc":
        outbox.put(created(name))

    def write() -> None:
        for message in outbox.take():
            if isinstance(message, ResponseDelta):
                name = message.response_id
                assert (message.seq, message.offset) == (seqs[name], len(got[name]))
                assert message.cursor == cursor(name, len(got[name]) + len(message.delta))
                got[name] += message.delta
                seqs[name] += 1

    for name, text, written in pieces:
        outbox.put(Shown(name, len(said[name]), text))
        said[name] += text
        assert outbox.size_chars == sum(map(len, said.values())) - sum(map(len, got.values()))
        if written:
            write()
    write()
    assert got == said
