"""A question without a conversation id gets a random one; a retry by the same sender gets that of its first try."""

import pytest

from gateway.exchange.own_sessions import OwnSessions
from gateway.exchange.question import Asker, ClientQuestion
from gateway.request.cursor import CursorKey
from shared.errors import ProtocolError
from shared.wire.messages import Said

NOW = 1_790_000_100_000.0
QUESTION, ANOTHER = ClientQuestion(body=b"hi", input="Hi"), ClientQuestion(body=b"ho", input="Ho")
SAME_END = ClientQuestion(body=b"oh, hi", input="Hi", turns=(Said(user="Oh", assistant="What?"),))
FIRST, RETRY, KEYED = Asker(), Asker(is_retry=True), Asker(key="1")
MINUTE_MS = 60_000.0


def own(secret: bytes = b"secret") -> OwnSessions:
    return OwnSessions(CursorKey(secret))


def test_same_words_without_a_mark_are_two_conversations() -> None:
    names = own()
    assert names.name("a", FIRST, QUESTION, NOW) != names.name("a", FIRST, QUESTION, NOW)


@pytest.mark.parametrize(
    ("sender", "question", "after_ms", "found"),
    [
        ("a", QUESTION, 2 * MINUTE_MS, True),
        ("a", QUESTION, 2 * MINUTE_MS + 1, False),
        ("b", QUESTION, 1, False),
        ("a", ANOTHER, 1, False),
    ],
)
def test_marked_retry_is_found_by_sender_and_body_for_two_minutes(
    sender: str, question: ClientQuestion, after_ms: float, *, found: bool
) -> None:
    names = own()
    first = names.name("a", FIRST, QUESTION, NOW)
    assert (names.name(sender, RETRY, question, NOW + after_ms) == first) is found


def test_a_marked_retry_takes_none_of_several_equal_first_tries() -> None:
    """A shop's server asks for all its customers by one token."""
    names = own()
    firsts = {names.name("shop", FIRST, QUESTION, NOW) for _ in range(2)}
    assert names.name("shop", RETRY, QUESTION, NOW) not in firsts


def test_a_retry_of_a_retry_is_found_although_its_first_try_went_to_another_gateway() -> None:
    names = own()
    assert names.name("a", RETRY, QUESTION, NOW) == names.name("a", RETRY, QUESTION, NOW + 1)


@pytest.mark.parametrize(
    ("secret", "sender", "key", "question", "after_ms", "same"),
    [
        (b"secret", "a", "1", QUESTION, 1, True),
        (b"secret", "a", "1", QUESTION, 20 * MINUTE_MS, False),
        (b"secret", "b", "1", QUESTION, 1, False),
        (b"secret", "a", "2", QUESTION, 1, False),
        (b"secret", "a", "1", ANOTHER, 1, False),
        (b"secret", "a", "1", SAME_END, 1, False),
        (b"another", "a", "1", QUESTION, 1, False),
    ],
)
def test_key_gives_the_same_name_at_every_gateway_with_the_secret(
    secret: bytes, sender: str, key: str, question: ClientQuestion, after_ms: float, *, same: bool
) -> None:
    here = own().name("a", KEYED, QUESTION, NOW)
    there = own(secret).name(sender, Asker(key=key), question, NOW + after_ms)
    assert (here == there) is same


@pytest.mark.parametrize(("chars", "found"), [(0, False), (1, False), (15, False), (16, True), (36, True)])
def test_a_shared_address_finds_its_first_try_only_by_a_key_that_no_other_customer_sends(
    chars: int, *, found: bool
) -> None:
    names, keyed = own(), Asker(key="1" * chars, is_retry=True)
    first = names.name("192.0.2.1", keyed, QUESTION, NOW, is_shared=True)
    assert (names.name("192.0.2.1", keyed, QUESTION, NOW, is_shared=True) == first) is found


def test_a_key_of_another_question_is_refused_and_keeps_its_id_across_a_window() -> None:
    names, window_end = own(), (NOW // 600_000 + 1) * 600_000
    first = names.name("a", KEYED, QUESTION, window_end - 1)
    assert names.name("a", KEYED, QUESTION, window_end) == first
    for another in (ANOTHER, SAME_END):
        with pytest.raises(ProtocolError, match="used for another question"):
            names.name("a", KEYED, another, window_end)
    assert names.name("b", KEYED, ANOTHER, window_end) != first


def test_tries_are_bounded() -> None:
    names = own()
    first = names.name("a", FIRST, QUESTION, NOW)
    for number in range(10_000):
        names.name(str(number), FIRST, ANOTHER, NOW)
    assert names.name("a", RETRY, QUESTION, NOW) != first
    assert len(names._tries) == 10_000
