"""Data of a conversation's generation counts as erased once a later generation is known, for a limited number of
erasures.
"""

from shared.conversation.erasures import ERASED_FOR_S, Erasures
from shared.wire.session_key import SessionKey

A, B, C = (SessionKey("t", name) for name in "abc")


def test_a_generation_is_erased_by_every_later_one() -> None:
    erasures = Erasures()
    assert (erasures.generation(A, 0.0), erasures.erased(A, 0, 0.0)) == (0, False)
    erasures.add(A, 100, 0.0)
    erasures.add(A, 200, 0.0)
    erasures.add(A, 150, 0.0)
    assert erasures.generation(A, 0.0) == 200
    assert [erasures.erased(A, generation, 0.0) for generation in (0, 100, 199, 200, 201)] == [True] * 3 + [False] * 2
    assert not erasures.erased(B, 0, 0.0)


def test_only_the_most_recent_erasures_are_kept() -> None:
    erasures = Erasures(capacity=2)
    for number, session in enumerate([A, B, A, C], start=1):
        erasures.add(session, number, 0.0)
    assert [erasures.generation(session, 0.0) for session in (A, B, C)] == [3, 0, 4]


def test_an_erasure_is_forgotten_when_redis_forgets_it() -> None:
    """Otherwise one process would use a generation that no other process knows."""
    erasures, over = Erasures(), ERASED_FOR_S * 1_000 + 1.0
    erasures.add(A, 200, 0.0)
    erasures.add(A, 200, over - 2)  # it is received again, with its first start time
    assert (erasures.generation(A, over - 1), erasures.generation(A, over)) == (200, 0)
    erasures.add(A, 100, over)
    assert erasures.generation(A, over) == 100
