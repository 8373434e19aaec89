"""Every gateway that reads `chat.people` comes to the same conversations from any records."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.people.talks import MAX_MESSAGES, MAX_TALK_CHARS, MAX_WAITING_SHOWN, TURN_CHARS, Heard, Moved, Talks
from shared.wire.messages import Erase, PeopleMove, PeopleRecord, PeopleSaid
from shared.wire.session_key import SessionKey
from shared.wire.topics import PEOPLE_MS

SESSION = SessionKey("shop", "s")
NOW = 1_800_000_000_000


def move(to: Any, epoch: int, agent: str = "", **fields: Any) -> PeopleMove:
    return PeopleMove(
        **({"tenant": "shop", "session_id": "s", "epoch": epoch, "to": to, "agent": agent, "name": agent} | fields)
    )


def said(message_id: str, by: Any = "customer", epoch: int = 0, agent: str = "", **fields: Any) -> PeopleSaid:
    own = {"message_id": message_id, "by": by, "text": f"text of {message_id}", "epoch": epoch, "agent": agent}
    return PeopleSaid(**({"tenant": "shop", "session_id": "s"} | own | fields))


def read(*records: PeopleRecord, talks: Talks | None = None) -> tuple[Talks, list[Moved | Heard | None]]:
    talks = Talks() if talks is None else talks
    return talks, [talks.apply(record, talks.position, NOW + talks.position) for record in records]


TAKEN = (move("waiting", 1), move("taken", 2, "anna"))


def test_of_two_takes_of_one_epoch_the_first_counts() -> None:
    talks, [*_, lost] = read(*TAKEN, move("taken", 2, "bert"))
    assert lost is None
    assert (talks.taken[SESSION].agent, talks.taken[SESSION].epoch) == ("anna", 2)


def test_a_message_counts_once_and_its_number_is_its_place() -> None:
    talks, [*_, first, again, second] = read(
        *TAKEN, said("a", "agent", 2, "anna"), said("a", "agent", 2, "anna"), said("b")
    )
    assert again is None
    assert isinstance(first, Heard)
    assert isinstance(second, Heard)
    assert [each.n for each in talks.taken[SESSION].said] == [3, 5]


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(said("x", "agent", 1, "anna"), id="of an earlier epoch"),
        pytest.param(said("x", "agent", 2, "bert"), id="of another person"),
        pytest.param(move("bot", 3, "bert"), id="hand-back by another person"),
        pytest.param(move("bot", 2, "anna"), id="an epoch again"),
        pytest.param(move("taken", 3), id="taken by nobody"),
        pytest.param(said("x", session_id="unknown"), id="unknown conversation"),
    ],
)
def test_what_its_author_may_not_do_does_not_count(late: PeopleRecord) -> None:
    _, [*_, ignored] = read(*TAKEN, late)
    assert ignored is None


def test_words_after_the_hand_back_do_not_count() -> None:
    talks, [*_, handed, agents, customers] = read(
        *TAKEN, move("bot", 3, "anna"), said("x", "agent", 2, "anna"), said("y")
    )
    assert isinstance(handed, Moved)
    assert (agents, customers, talks.taken) == (None, None, {})


def test_handed_back_words_are_turns_of_questions_and_answers() -> None:
    words = (
        said("a", "agent", 2, "anna"),
        said("q1"),
        said("q2"),
        said("b", "agent", 2, "anna"),
        said("c", "agent", 2, "anna"),
        said("q3"),
    )
    _, [*_, handed] = read(*TAKEN, *words, move("waiting", 3, "anna"))
    assert isinstance(handed, Moved)
    assert [(turn.user, turn.output_text) for turn in handed.turns] == [
        ("", "text of a"),
        ("text of q1\ntext of q2", "text of b\ntext of c"),
    ]
    talks, _ = read(*TAKEN, *words, move("waiting", 3, "anna"))
    _, [_, _, _, again] = read(
        move("taken", 4, "bert"), said("d", "agent", 4, "bert"), said("q4"), move("bot", 5, "bert"), talks=talks
    )
    assert isinstance(again, Moved)
    assert [(turn.user, turn.output_text) for turn in again.turns] == [("text of q3", "text of d")]


def test_a_turn_keeps_the_last_of_many_words() -> None:
    """Workers compare each later answer with a turn's facts: 400,000 characters would take one 0.7 s."""
    questions = [said(f"q{number}", text="x" * 3_000) for number in range(9)]
    replies = [said(f"r{number}", "agent", 2, "anna", text="y" * 3_000) for number in range(9)]
    words = *questions, said("q"), *replies, said("r", "agent", 2, "anna")
    _, [*_, handed] = read(*TAKEN, *words, move("bot", 3, "anna"))
    assert isinstance(handed, Moved)
    [turn] = handed.turns
    assert (len(turn.user), turn.user[-9:]) == (TURN_CHARS, "text of q")
    assert (len(turn.output_text), turn.output_text[-9:]) == (TURN_CHARS, "text of r")


def test_an_erased_conversation_has_no_words_and_cannot_be_taken() -> None:
    erase = Erase(tenant="shop", session_id="s", generation=7)
    talks, [*_, taken, word] = read(*TAKEN, said("q"), erase, move("taken", 9, "bert"), said("r"))
    assert (taken, word, talks.find(SESSION), talks.taken) == (None, None, None, {})
    assert "text of" not in repr(talks._talks)
    _, [_, wanted] = read(move("waiting", 9, generation=3), move("waiting", 1, generation=7), talks=talks)
    assert isinstance(wanted, Moved), "the customer asks for a person in the next generation"


def test_a_waiting_conversation_keeps_its_place_when_its_person_leaves() -> None:
    other = {"session_id": "t"}
    talks, _ = read(move("waiting", 1), move("waiting", 1, **other), move("taken", 2, "anna"), move("waiting", 3))
    assert [talk.session.session_id for talk in talks.of_tenant("shop")] == ["s", "t"]
    assert talks.of_tenant("another") == []


def test_memory_is_bounded_and_what_a_person_has_is_kept_longest() -> None:
    talks = Talks(max_talks=3, max_chars=1_000)
    read(*TAKEN, talks=talks)
    for number in range(9):
        read(move("waiting", 1, session_id=f"w{number}"), talks=talks)
    assert len(talks) == 3
    assert SESSION in talks.taken
    for number in range(MAX_MESSAGES + 9):
        read(said(f"m{number}", text="x"), talks=talks)
    assert len(talks.taken[SESSION].said) == len(talks.taken[SESSION].numbers) == MAX_MESSAGES


def test_one_conversations_words_displace_no_other_that_a_person_has() -> None:
    talks = Talks(max_chars=2 * MAX_TALK_CHARS)
    read(move("taken", 1, "bert", session_id="t"), said("q", session_id="t"), *TAKEN, talks=talks)
    for number in range(40):
        read(said(f"m{number}", text="x" * (MAX_TALK_CHARS // 10)), talks=talks)
    assert set(talks.taken) == {SESSION, SessionKey("shop", "t")}
    mine = talks.taken[SESSION]
    assert mine.num_chars == sum(len(each.text) for each in mine.said) <= MAX_TALK_CHARS
    assert [each.message_id for each in mine.said] == list(mine.numbers) == [f"m{number}" for number in range(30, 40)]


def test_a_list_shows_those_that_wait_longest_and_all_that_are_taken() -> None:
    talks, _ = read(*(move("waiting", 1, session_id=f"w{number}") for number in range(MAX_WAITING_SHOWN + 3)), *TAKEN)
    read(move("taken", 2, "anna", session_id="w0"), move("bot", 2, session_id="w1"), talks=talks)
    shown = [talk.session.session_id for talk in talks.of_tenant("shop")]
    assert shown == [*(f"w{number}" for number in range(2, MAX_WAITING_SHOWN + 2)), "w0", "s"]


@pytest.mark.parametrize("early", [True, False])
def test_a_request_written_before_its_erasures_record_counts_at_every_gateway(early: bool) -> None:
    """Whether a gateway learns of the erasure by this log or earlier."""
    talks, _ = read(*TAKEN, said("q"))
    if early:
        talks.forget(SESSION, 7, NOW)
    read(move("waiting", 1, generation=7), Erase(tenant="shop", session_id="s", generation=7), talks=talks)
    talk = talks.find(SESSION)
    assert talk is not None
    assert (talk.state, talk.epoch, talk.said, talks.taken) == ("waiting", 1, [], {})


def test_what_the_log_no_longer_keeps_is_forgotten() -> None:
    talks, _ = read(*TAKEN, said("q"))
    talks.apply(move("waiting", 1, session_id="t"), talks.position, NOW + PEOPLE_MS + 10)
    assert (len(talks), talks.taken) == (1, {})


RECORDS = st.one_of(
    st.builds(
        move,
        st.sampled_from(["waiting", "taken", "bot", "resolved"]),
        st.integers(0, 8),
        st.sampled_from(["", "anna", "bert"]),
        session_id=st.sampled_from(["s", "t"]),
        generation=st.sampled_from([0, 0, 0, 5]),
    ),
    st.builds(
        said,
        st.sampled_from("abcdef"),
        st.sampled_from(["customer", "agent"]),
        st.integers(0, 8),
        st.sampled_from(["anna", "bert"]),
        session_id=st.sampled_from(["s", "t"]),
    ),
    st.builds(Erase, tenant=st.just("shop"), session_id=st.sampled_from(["s", "t"]), generation=st.just(5)),
)


@given(st.lists(RECORDS, max_size=40), st.data())
def test_any_log_leaves_one_owner_and_no_word_of_another(records: list[PeopleRecord], data: st.DataObject) -> None:
    """Also when each record is written twice, and for a gateway that learns of an erasure earlier than by this log."""
    talks = Talks()
    shown: list[str] = []
    for record in records:
        early = data.draw(st.booleans())
        if isinstance(record, Erase) and early:
            talks.forget(SessionKey(record.tenant, record.session_id), record.generation, NOW)
        owner = talks.taken.get(SessionKey(record.tenant, record.session_id))
        owned = (owner.agent, owner.epoch) if owner is not None else None
        for _ in range(2):
            changed = talks.apply(record, talks.position, NOW + talks.position)
            if isinstance(changed, Heard) and isinstance(record, PeopleSaid):
                assert record.by == "customer" or (record.agent, record.epoch) == owned
                shown.append(f"{record.session_id}{record.message_id}")
        for talk in talks.taken.values():
            assert (talk.state, bool(talk.agent)) == ("taken", True)
            assert [each.n for each in talk.said] == sorted({each.n for each in talk.said})
    if not any(isinstance(record, Erase) for record in records):
        assert len(shown) == len(set(shown))
