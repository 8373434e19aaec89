"""What was asked before its conversation was erased is known for it, for the last so many erasures."""

from shared.session_key import SessionKey
from workers.erasures import Erasures

A, B, C = (SessionKey("t", name) for name in "abc")


def test_what_was_asked_before_the_last_erasure_is_told_from_what_came_after() -> None:
    erasures = Erasures()
    erasures.add(A, 100.0)
    erasures.add(A, 200.0)
    assert [erasures.since(A, unix_ms) for unix_ms in (99.0, 150.0, 200.0, 201.0)] == [True, True, True, False]
    assert not erasures.since(B, 0.0)


def test_only_so_many_are_kept_those_erased_last() -> None:
    erasures = Erasures(capacity=2)
    for now, session in enumerate([A, B, A, C], start=1):
        erasures.add(session, float(now))
    assert [erasures.since(session, 0.0) for session in (A, B, C)] == [True, False, True]
