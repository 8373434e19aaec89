"""Receive the workers' replies: show their text, and end answers as the workers have ended them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.destination.gate import AdmissionGate
from gateway.request import replies
from gateway.request.entry import Entry
from gateway.request.inflight import InflightTable
from gateway.serving.answering import Answering
from gateway.serving.sending import Sending
from gateway.session.connection import Connection, Connections, put_all, write
from gateway.telemetry.tracer import Tracer
from shared.process.clock import now_unix_ms
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.wire.messages import Reply, ReplyDelta, ReplyDone

_LATE: Final = ("infeasible", "deadline")  # ends for lack of time; with any other reason the model had no text to give


@dataclass(slots=True, kw_only=True)
class Receiving:
    """Owned by the gateway's event loop."""

    inflight: InflightTable
    connections: Connections
    admission_gate: AdmissionGate
    tracer: Tracer
    sending: Sending
    answering: Answering

    def receive_replies(self, batch: Sequence[Reply]) -> None:
        """Receive a batch of replies. Each client concerned is written to once."""
        now = now_unix_ms()
        touched: dict[str, Connection] = {}
        for reply in batch:
            with contained("answer", request_id=reply.request_id) as receiving:
                self._receive(reply, touched, now)
            if receiving.error is not None:
                self.answering.fail(self.inflight.get_any(reply.request_id), torn=True)
        for connection in touched.values():
            write(connection)
        for reply in batch:
            with contained("answer", request_id=reply.request_id):
                self.admission_gate.note_reply(reply, now)

    def _receive(self, reply: Reply, touched: dict[str, Connection], now: float) -> None:
        entry = self.inflight.get(reply.request_id)
        if isinstance(reply, ReplyDone):
            with contained("answer", request_id=reply.request_id):
                self.tracer.note_worker_end(entry, reply, now)
        if entry is None or reply.session_id != entry.request.session.session_id:
            # otherwise this gateway itself published the end
            if isinstance(reply, ReplyDelta) or reply.origin == "worker":
                metrics.replies_dropped.labels(self.inflight.why_dropped(reply)).inc()
            if isinstance(reply, ReplyDone):
                self._release_claim(reply)
            return
        if isinstance(reply, ReplyDone):
            self._finish(entry, reply, now)
            self._release_claim(reply)
            return
        connection = self.connections.of(entry)
        shown = replies.add_delta(entry, reply, now)
        if shown and connection is not None:
            touched[connection.session.connection_id] = connection
            put_all(connection, shown)

    def _release_claim(self, reply: ReplyDone) -> None:
        """Release the conversation of an answer that a worker has ended, now or after this gateway ended it."""
        entry = self.inflight.get_any(reply.request_id)
        if entry is not None and entry.answer.done and reply.origin == "worker":
            self.sending.claims.release(entry.request.session, entry.response_id)

    def _finish(self, entry: Entry, reply: ReplyDone, now: float) -> None:
        if reply.status == "cancelled" and reply.origin == "worker":
            return  # the gateway that cancelled the answer has ended it already
        if reply.origin == "worker" and not entry.answer.visible and not reply.output_text:
            gave_up = reply.reason == "infeasible"
            if gave_up and self.sending.descend(entry, now):
                return
            if not (gave_up and entry.seen):  # the text seen of an adopted answer was written on a lower rung
                self.answering.fall_back(entry, "worker" if reply.reason in _LATE else "silent")
            return
        self.answering.deliver(entry, replies.finish(entry, reply, now))
        if _has_whole_aside(entry):
            self.answering.run_for(entry, self._await_silence(entry))

    async def _await_silence(self, entry: Entry) -> None:
        """Restart an answer with the complete text kept in `aside`, once the visible text is silent."""
        while _has_whole_aside(entry):
            await asyncio.sleep(max(0.0, entry.answer.silent_in_ms(now_unix_ms()) + 1) / 1_000)
            if items := replies.begin_again(entry, now_unix_ms()):
                self.answering.deliver(entry, items)


def _has_whole_aside(entry: Entry) -> bool:
    return entry.answer.aside is not None and entry.answer.aside.end is not None
