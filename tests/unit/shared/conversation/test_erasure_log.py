"""The erasures that a gateway knows of, for edges that ask what they missed, and for what they bring."""

import random

import pytest

from shared.conversation.erasure_log import Erased, ErasureLog, Missed
from shared.conversation.erasures import LONGEST_OUTAGE_S, MARKED_FOR_S
from shared.wire.messages import Erase
from shared.wire.session_key import SessionKey
from shared.wire.topics import TopicNames


def erase(session_id: str, generation: int = 1) -> Erase:
    return Erase(tenant="demo", session_id=session_id, generation=generation)


def test_missed_erasures_are_returned_from_an_offset() -> None:
    log = ErasureLog()
    log.begin_at(100)
    log.add(erase("a"), 100)
    log.add(erase("b"), 101)
    assert log.since(101, "demo") == Missed(102, erased=(Erased("b", 1),))
    assert log.since(101, "another") == Missed(102)
    assert log.since(99, "demo") == Missed(102, gap=True)


def test_what_was_erased_before_the_gateway_began_is_loaded_beside_what_comes() -> None:
    log = ErasureLog()
    log.begin_at(100)
    log.add(erase("a", 7), 100)
    log.load([(97, erase("a", 5)), (98, erase("b", 6))], begin=97)
    assert log.whole
    assert log.since(97, "demo") == Missed(101, erased=(Erased("b", 6), Erased("a", 7)))
    assert log.since(96, "demo").gap
    assert [log.generation(SessionKey("demo", name)) for name in "abc"] == [7, 6, 0]


def test_a_recreated_topic_counts_as_one_gap() -> None:
    log = ErasureLog()
    log.begin_at(100)
    log.add(erase("a"), 100)
    log.add(erase("b"), 0)
    assert log.since(101, "demo") == Missed(1, gap=True)
    log.add(erase("c"), 1)
    assert log.since(1, "demo") == Missed(2, erased=(Erased("c", 1),))
    assert log.since(0, "demo") == Missed(2, erased=(Erased("b", 1), Erased("c", 1)))
    assert log.generation(SessionKey("demo", "a")) == 1, "it stays erased"


def test_a_new_edge_gets_all_erasures_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is asked there in an erased conversation would seem to be from before the erasure. A page is small
    enough for a slow line."""
    monkeypatch.setattr("shared.conversation.erasure_log._PAGE", 2)
    log, pages, place = ErasureLog(), list[Missed](), None
    log.begin_at(5)
    for at, name in enumerate("abcde", start=5):
        log.add(erase(name), at)
    while not pages or pages[-1].erased:
        pages.append(log.since(place, "demo"))
        place = pages[-1].next
    assert ["".join(each.session_id for each in page.erased) for page in pages] == ["ab", "cd", "e", ""]
    assert place == log.next


@pytest.mark.parametrize("seed", range(10))
def test_an_edge_that_asks_in_any_steps_misses_nothing(seed: int) -> None:
    chance, log, known, place = random.Random(seed), ErasureLog(), dict[str, int](), 5
    log.begin_at(5)
    for offset in range(5, 60):
        log.add(erase(chance.choice("abcdef"), offset), offset)
        if chance.random() < 0.3:
            missed = log.since(place, "demo")
            known |= {each.session_id: each.generation for each in missed.erased}
            place = missed.next
            assert known == {name: at for name in "abcdef" if (at := log.generation(SessionKey("demo", name)))}


def test_a_turn_older_than_what_a_full_log_has_dropped_is_not_covered() -> None:
    log = ErasureLog(max_erasures=2)
    for at, name in enumerate("abc"):
        log.add(erase(name, 1_000 + at), at)
    assert [log.covers(asked, 1_500) for asked in (999, 1_000, 1_001)] == [False, False, True]
    assert log.since(0, "demo").gap
    assert not log.since(1, "demo").gap


def test_the_topic_and_redis_keep_an_erasure_for_longer_than_an_outage_may_last() -> None:
    names = TopicNames()
    kept_s = int(names.config(names.erasures)["retention.ms"]) / 1_000
    assert kept_s > MARKED_FOR_S > LONGEST_OUTAGE_S
    assert [ErasureLog().covers(asked, LONGEST_OUTAGE_S * 1_000 + 5) for asked in (5, 6)] == [False, True]
