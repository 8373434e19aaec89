"""The erasures that a gateway has read, for edges that ask what they missed."""

from shared.conversation.erasure_log import Erased, ErasureLog, Missed
from shared.wire.messages import Erase


def erase(session_id: str) -> Erase:
    return Erase(tenant="demo", session_id=session_id, generation=1)


def test_what_was_missed_is_told_from_an_offset_on() -> None:
    log = ErasureLog()
    log.begin_at(100)
    log.add(erase("a"), 100)
    log.add(erase("b"), 101)
    assert log.since(101, "demo") == Missed(102, erased=(Erased("b", 1),))
    assert log.since(101, "another") == Missed(102)
    assert log.since(99, "demo") == Missed(102, gap=True)


def test_a_topic_that_is_made_again_is_one_gap() -> None:
    log = ErasureLog()
    log.begin_at(100)
    log.add(erase("a"), 100)
    log.add(erase("b"), 0)
    assert log.since(101, "demo") == Missed(1, gap=True)
    log.add(erase("c"), 1)
    assert log.since(1, "demo") == Missed(2, erased=(Erased("c", 1),))
