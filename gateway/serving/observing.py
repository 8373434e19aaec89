"""Write how a rollout's answers ended to `chat.observations`. Nothing waits for it, and no answer fails by it."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway.people.session_answers import verdict_of
from gateway.request.entry import Entry
from gateway.telemetry.observation import observation_of, rating_of
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.process.clock import wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Feedback, Observation
from shared.wire.outcome import Response
from shared.wire.topics import BROADCAST_PARTITION

_MOST_SENDING: Final = 256
_MOST_KEPT: Final = 10_000


@dataclass(slots=True, kw_only=True)
class Observing:
    """Owned by the gateway's event loop. The last answers are kept for their ratings."""

    producer: Producer
    topic: str
    sending: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _answers: OrderedDict[str, Observation] = field(default_factory=OrderedDict)

    def end(self, entry: Entry, response: Response) -> None:
        """Write how an answer of the lanes canary and control has ended."""
        seen = observation_of(entry, response, int(wire_unix_ms()))
        if seen is None:
            return
        if seen.answered_by in {"", seen.revision}:  # a rating of another version's text is no evidence of this one
            self._answers[seen.response_id] = seen
        if len(self._answers) > _MOST_KEPT:
            self._answers.popitem(last=False)
        self._write(seen)

    def rate(self, feedback: Feedback) -> None:
        """Write what a customer thinks of such an answer, where that has changed."""
        answer, verdict = self._answers.get(feedback.response_id), verdict_of(feedback)
        if answer is None or verdict is None:
            return
        rated = rating_of(answer, "up" if verdict == "resolved" else "down", int(wire_unix_ms()))
        if rated.rating != answer.rating:
            self._answers[rated.response_id] = rated
            self._write(rated)

    def _write(self, seen: Observation) -> None:
        if len(self.sending) < _MOST_SENDING:
            self.sending.start(self._send(seen))
        else:
            metrics.observations.labels("dropped").inc()

    async def _send(self, seen: Observation) -> None:
        try:
            await self.producer.enqueue(Outgoing(self.topic, msgpack_encode(seen), partition=BROADCAST_PARTITION))
        except (BrokerUnavailable, ProtocolError):
            metrics.observations.labels("dropped").inc()
        else:
            metrics.observations.labels("sent").inc()
