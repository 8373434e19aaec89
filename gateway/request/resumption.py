"""Find which answers a returning client should receive, and from which character on. An answer is in this gateway's
memory, or it is taken over from another gateway. Pure."""

from typing import Final

from gateway.access.charges import Caller
from gateway.request.answer import AnswerState
from gateway.request.cursor import ResumePoint
from gateway.request.entry import Adoption, Entry, Item, Publication, Request, RequestTrace
from shared.wire.deadline import Deadline
from shared.wire.session_key import SessionKey

# While the log of an adopted answer is read, its deadlines are postponed by at most the first value, and past a hard
# deadline in the future by at most the second.
_RECALL_MS: Final = 1_000
_OVER_DEADLINE_MS: Final = 200


def reattach(entry: Entry, connection_id: str) -> list[Item]:
    """Attach a client that repeats its question, on any connection. Return the answer so far: nothing is computed
    twice."""
    entry.connection_id, entry.seen = connection_id, 0
    answer = entry.answer
    if not answer.created:
        return []
    return [*entry.replay(), *([answer.response] if answer.response is not None else [])]


def resume(entry: Entry, connection_id: str, point: ResumePoint) -> list[Item]:
    """Attach a client that resumes with a cursor. Return what it lacks, as far as this gateway has it."""
    entry.connection_id = connection_id
    answer = entry.answer
    if not answer.created:
        return []  # the client also asked again here: it is shown the answer from the beginning
    entry.seen, entry.seen_crc = point.chars, point.crc
    if answer.response is None:
        return entry.unseen()
    return [*(entry.unseen() or entry.restart()), answer.response]


def adopt(
    point: ResumePoint,
    session: SessionKey,
    connection_id: str,
    now_unix_ms: float,
    *,
    trace: RequestTrace | None = None,
    caller: Caller | None = None,
) -> Entry:
    """Return an entry for an answer that another gateway accepted, made from its client's cursor.

    Args:
        point: the answer's part of the cursor, with its age as of now
        session: the conversation
        connection_id: the connection that resumes
        now_unix_ms: the current time
        trace: continues the first gateway's trace; None if none is recorded
        caller: the client that resumes

    Returns:
        The entry, with its deadlines postponed while the log is being read.
    """
    now = int(now_unix_ms)
    start = now - point.age_ms
    hard = start + point.deadline_ms
    deadline = Deadline(first_token_unix_ms=start + point.first_token_ms, deadline_unix_ms=hard)
    latest = now + _RECALL_MS if hard <= now else min(now + _RECALL_MS, hard + _OVER_DEADLINE_MS)
    entry = Entry(
        request=Request(
            response_id=point.response_id,
            event_id=point.event_id,
            session=session,
            input="",
            received_unix_ms=start,
            deadline=deadline,
            clock_ms=point.received_unix_ms - start,
            generation=point.generation,
            log=point.log,
            trace=trace,
            caller=caller,
        ),
        connection_id=connection_id,
        publication=Publication(
            destination=point.destination,
            place=point.place,
            published=point.place is not None,
        ),
        adoption=Adoption(latest_unix_ms=(now + _RECALL_MS if hard <= now else hard) + _OVER_DEADLINE_MS),
        seen=point.chars,
        seen_crc=point.crc,
    )
    entry.answer.advance(AnswerState.WAITING)
    entry.deadline = Deadline(
        first_token_unix_ms=max(deadline.first_token_unix_ms, latest), deadline_unix_ms=max(hard, latest)
    )
    return entry


def end_recall(entry: Entry) -> None:
    """Apply the request's own deadline again, after the log of an adopted answer has been read."""
    entry.deadline = entry.request.deadline


def learn_question(entry: Entry, question: str) -> None:
    """Store the question of an adopted request, unless it is known already."""
    if entry.adoption is not None:
        entry.adoption.question = entry.adoption.question or question
