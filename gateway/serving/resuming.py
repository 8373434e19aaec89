"""A client comes, or comes back: what it missed follows, and what another gateway began is adopted."""

from dataclasses import dataclass

from gateway.people.people import People
from gateway.request.cursor import CursorKey, Seal, Told
from gateway.request.entry import Entry, Item
from gateway.request.inflight import InflightTable
from gateway.request.resumption import adopt, end_recall, resume
from gateway.serving.answering import Answering
from gateway.serving.deadlines import Deadlines
from gateway.serving.erasing import Erasing
from gateway.session.connection import Connection, put_all
from gateway.session.connections import Connections
from gateway.session.protocol import Begin
from gateway.session.recall import Recall
from gateway.telemetry.tracer import Tracer
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.telemetry import metrics
from shared.wire.messages import Resume


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
    erasing: Erasing
    deadlines: Deadlines

    async def begin(self, connection: Connection, begin: Begin) -> None:
        """Begin a session. What the client missed follows at once where it is held here; what another gateway began is
        read from the log."""
        session, resume, now = connection.session, begin.resume, now_unix_ms()
        generation = (await self.erasing.of(session))[0] if resume is not None else 0
        seal = self.key.seal(session.key)
        told = self._resumable(seal, resume, wire_unix_ms()) if resume is not None else None
        connection.begin(seal, told or (), now)
        erased = [each for each in told or () if each.generation < generation]
        missed = [item for each in told or () if each not in erased for item in self._resume(connection, each, now)]
        connection.put(session.created(recovered=told is not None, replayed=len(missed)))
        put_all(connection, missed)
        for each in erased:
            self._tell_erased(connection, each, now)
        if begin.returns:
            self.people.came_back(connection)

    def _resumable(self, seal: Seal, resume: Resume, wire_unix_ms: float) -> list[Told] | None:
        """Return the open answers of a client that comes back, each of its age by now; None where not every one of them
        can be gone on with."""
        told = seal.read(resume.cursor)
        if told is None:
            return None
        unknown = [each for each in told if self.inflight.get_any(each.response_id) is None]
        if not all(each.log is not None and each.resumable(wire_unix_ms) for each in unknown):
            return None
        for each in told:
            each.age_ms = each.elapsed_ms(wire_unix_ms, resume.age_ms)
        return told if len(self.inflight) + len(unknown) <= self.max_inflight else None

    def _resume(self, connection: Connection, told: Told, now: float) -> list[Item]:
        session = connection.session
        entry = self.inflight.get_any(told.response_id)
        if entry is not None:
            self.connections.take_over(connection, entry)
            missed = resume(entry, session.connection_id, told)
            self.deadlines.watch(entry)
            return missed
        entry = self._adopt(connection, told, now)
        with self.inflight.refused_on_error(entry):
            self.answering.work_on(entry, self._recall(entry))
        return []

    def _adopt(self, connection: Connection, told: Told, now: float) -> Entry:
        session = connection.session
        trace = self.tracer.adopt(told.trace, now)
        entry = adopt(told, session.key, session.connection_id, now, trace)
        self.inflight.accept(entry)
        self.connections.count_in(connection)
        with self.inflight.refused_on_error(entry):
            self.deadlines.watch(entry)
        metrics.inflight.set(len(self.inflight))
        return entry

    def _tell_erased(self, connection: Connection, told: Told, now: float) -> None:
        """Tell the client that the answer was cancelled, and nothing of it."""
        entry = self._adopt(connection, told, now)
        self.answering.cancel(entry)
        self.inflight.forget(entry)

    async def _recall(self, entry: Entry) -> None:
        """Read on where the other gateway was; until all that the log holds is known, no deadline ends the answer."""
        await self.recall.read(entry, self.answering.replied)
        end_recall(entry)
        self.deadlines.watch(entry)
