"""Attach returning clients to their answers: here, or at another gateway than the one that accepted the request.
Pure."""

from typing import Final

from gateway.destination.destination import Destination
from gateway.request.answer import Answer, State
from gateway.request.cursor import ResumePoint
from gateway.request.entry import Adoption, Entry, Item, Publication, Request, RequestTrace
from shared.wire.deadline import Deadline
from shared.wire.session_key import SessionKey

# An adopted answer is read from the log for so long, at most, before this gateway's clock may end it; past a deadline
# that is still to come only so far.
_RECALL_MS: Final = 1_000
_OVER_DEADLINE_MS: Final = 200


def reattach(entry: Entry, connection_id: str) -> list[Item]:
    """Attach a client that asks again, on this or another connection; return all so far: nothing is computed twice."""
    entry.connection_id, entry.seen = connection_id, 0
    answer = entry.answer
    if not answer.created:
        return []
    return [*entry.replay(), *([answer.response] if answer.response is not None else [])]


def resume(entry: Entry, connection_id: str, point: ResumePoint) -> list[Item]:
    """Attach a returning client; return what it lacks by its cursor, as far as it is known here."""
    entry.connection_id = connection_id
    answer = entry.answer
    if not answer.created:
        return []  # it was asked again here meanwhile, and will be shown from its beginning
    entry.seen, entry.seen_crc = point.chars, point.crc
    if answer.response is None:
        return entry.unseen()
    return [*(entry.unseen() or entry.restart()), answer.response]


def adopt(
    point: ResumePoint, session: SessionKey, connection_id: str, now_unix_ms: float, trace: RequestTrace | None = None
) -> Entry:
    """Return the entry of an answer that another gateway accepted, from its client's cursor, of its age by now. Its
    deadlines wait until the log has been read, or for a while."""
    now = int(now_unix_ms)
    start = now - point.age_ms
    hard = start + point.deadline_ms
    deadline = Deadline(first_token_unix_ms=start + point.first_token_ms, deadline_unix_ms=hard)
    latest = now + _RECALL_MS if hard <= now else min(now + _RECALL_MS, hard + _OVER_DEADLINE_MS)
    return Entry(
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
        ),
        connection_id=connection_id,
        answer=Answer(state=State.WAITING),
        publication=Publication(
            destination=Destination(point.lane, bucket=point.bucket),
            place=point.place,
            published=point.place is not None,
        ),
        adoption=Adoption(
            latest_unix_ms=(now + _RECALL_MS if hard <= now else hard) + _OVER_DEADLINE_MS,
            recall_deadline=Deadline(
                first_token_unix_ms=max(deadline.first_token_unix_ms, latest), deadline_unix_ms=max(hard, latest)
            ),
        ),
        seen=point.chars,
        seen_crc=point.crc,
    )


def end_recall(entry: Entry) -> None:
    """Note that the log's part of an adopted answer has been read: from now on the request's own deadline holds."""
    if entry.adoption is not None:
        entry.adoption.recall_deadline = None


def learn_question(entry: Entry, question: str) -> None:
    """Keep the question of an adopted request, read from its topic or asked again; the first that is known stays."""
    if entry.adoption is not None:
        entry.adoption.question = entry.adoption.question or question
