"""Encoded turns are cached by conversation: each conversation is deleted separately, and the number of conversations is
bounded."""

from shared.model.chat_template import Ids
from shared.wire.session_key import SessionKey
from workers.prompt.conversation import EncodedTurns

MINE, OTHER = SessionKey("t", "mine"), SessionKey("t", "other")


class Counted:
    """Encodes, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, user: str, assistant: str, output_ids: Ids) -> Ids:
        self.count += 1
        return (*output_ids, len(user), len(assistant))


def test_a_conversation_that_is_forgotten_takes_no_other_with_it() -> None:
    encode = Counted()
    turns = EncodedTurns(encode)
    for _ in range(3):
        for session in (MINE, OTHER):
            turns.encoder_for(session)("hello", "hi", ())
    assert encode.count == 2
    turns.forget(MINE)
    turns.encoder_for(OTHER)("hello", "hi", ())
    assert encode.count == 2
    turns.encoder_for(MINE)("hello", "hi", ())
    assert encode.count == 3


def test_what_is_encoded_by_one_that_was_forgotten_meanwhile_is_not_remembered() -> None:
    encode = Counted()
    turns = EncodedTurns(encode)
    before = turns.encoder_for(MINE)
    turns.forget(MINE)
    before("hello", "hi", ())
    turns.encoder_for(MINE)("hello", "hi", ())
    assert encode.count == 2


def test_the_conversations_that_spoke_last_are_remembered() -> None:
    encode = Counted()
    turns = EncodedTurns(encode, conversations=2)
    for name in ("a", "b", "a", "c"):
        turns.encoder_for(SessionKey("t", name))("hello", "hi", ())
    assert encode.count == 3
    turns.encoder_for(SessionKey("t", "a"))("hello", "hi", ())
    assert encode.count == 3
    turns.encoder_for(SessionKey("t", "b"))("hello", "hi", ())
    assert encode.count == 4
