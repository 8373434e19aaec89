"""Open a session for a client, and continue the answers that were running when a returning client lost its connection.
An answer is either in this gateway's memory, or it is taken over from the gateway that began it."""

from dataclasses import dataclass

from gateway.destination.claim import Claims
from gateway.people.people import People
from gateway.request.cursor import CursorKey, ResumePoint, Seal
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.request.resumption import adopt, end_recall, resume
from gateway.serving.answering import Answering
from gateway.serving.deadlines import Deadlines
from gateway.serving.erasing import Erasing
from gateway.serving.receiving import Receiving
from gateway.serving.talking import Talking
from gateway.session.connection import Connection, Connections, put_all
from gateway.session.effects import OpenSession
from gateway.session.recall import Recall
from gateway.telemetry.tracer import Tracer
from shared.process.clock import wire_unix_ms
from shared.wire.messages import Resume
from shared.wire.session_key import SessionKey


@dataclass(slots=True, kw_only=True)
class Resuming:
    """Owned by the gateway's event loop."""

    key: CursorKey
    max_inflight: int
    recall: Recall
    inflight: InflightTable
    connections: Connections
    people: People
    tracer: Tracer
    answering: Answering
    receiving: Receiving
    erasing: Erasing
    deadlines: Deadlines
    claims: Claims
    talking: Talking

    async def open_session(self, connection: Connection, opening: OpenSession, now: float) -> None:
        """Open a session. The missed text of an answer held here follows immediately; an answer that another gateway
        began is read from the log first."""
        session, resume = connection.session, opening.resume
        if opening.returns and session.talk is not None:
            await self.talking.until_read(session.talk)
        generation = (await self.erasing.generation_of(session.key, now)).number if resume is not None else 0
        seal = self.key.seal(session.key)
        points = self._resumable(seal, resume, wire_unix_ms()) if resume is not None else None
        connection.start_session(seal, points or (), now)
        erased = [each for each in points or () if each.generation < generation]
        ended = [each for each in points or () if each not in erased and self._is_persons(session.key, each)]
        kept = [each for each in points or () if each not in erased and each not in ended]
        missed = [item for each in kept for item in self._resume(connection, each, now)]
        connection.put(session.created(recovered=points is not None, replayed=len(missed)))
        put_all(connection, missed)
        for each in erased:
            self._cancel_erased(connection, each, now)
        for each in ended:
            self.talking.hand_over(self._adopt(connection, each, now))
        if session.talk is not None:
            self.connections.join_session(connection)
            self.talking.reopen(connection)
        if opening.returns:
            self.people.resend_open_handoff(connection)
            self.erasing.note_consent(connection)

    def _is_persons(self, session: SessionKey, point: ResumePoint) -> bool:
        """Return whether another gateway began an answer in a conversation that a person has, so that no more of it may
        be shown."""
        return session in self.talking.log.talks.taken and self.inflight.get_any(point.response_id) is None

    def _resumable(self, seal: Seal, resume: Resume, wire_unix_ms: float) -> list[ResumePoint] | None:
        """Return the open answers in a client's cursor, with their ages as of now; None unless all of them can be
        resumed."""
        points = seal.read(resume.cursor)
        if points is None:
            return None
        unknown = [each for each in points if self.inflight.get_any(each.response_id) is None]
        if not all(each.log is not None and each.resumable(wire_unix_ms) for each in unknown):
            return None
        for each in points:
            each.age_ms = each.elapsed_ms(wire_unix_ms, resume.age_ms)
        return points if len(self.inflight) + len(unknown) <= self.max_inflight else None

    def _resume(self, connection: Connection, point: ResumePoint, now: float) -> list[Item]:
        session = connection.session
        entry = self.inflight.get_any(point.response_id)
        if entry is not None:
            self.connections.attach(connection, entry)
            missed = resume(entry, session.connection_id, point)
            self.deadlines.watch(entry)
            return missed
        entry = self._adopt(connection, point, now)
        with self.inflight.refused_on_error(entry):
            self.answering.run_for(entry, self._recall(entry))
        return []

    def _adopt(self, connection: Connection, point: ResumePoint, now: float) -> Entry:
        session = connection.session
        trace = self.tracer.adopt(point.trace, now)
        entry = adopt(point, session.key, session.connection_id, now, trace=trace, caller=session.caller)
        self.inflight.accept(entry)
        generation = entry.request.generation
        self.claims.keep_partition(session.key, entry.response_id, entry.publication.partition, generation)
        self.connections.count_in(connection)
        with self.inflight.refused_on_error(entry):
            self.deadlines.watch(entry)
        return entry

    def _cancel_erased(self, connection: Connection, point: ResumePoint, now: float) -> None:
        """Send the client a cancelled end without text for an answer that was erased."""
        entry = self._adopt(connection, point, now)
        self.answering.cancel(entry)
        self.inflight.forget(entry)

    async def _recall(self, entry: Entry) -> None:
        """Read an adopted answer from the log. Its deadline is postponed until the log has been read."""
        await self.recall.read(entry, self.receiving.receive_replies)
        end_recall(entry)
        self.deadlines.watch(entry)
