"""Publish to `chat.observations` how each answer ended that a rollout compares, so that the rollout's controller can
judge the new model version. This runs in the background: an error here neither delays nor changes an answer."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import msgspec

from gateway.access.charges import Caller
from gateway.people.session_answers import verdict_of
from gateway.request.entry import Entry
from gateway.telemetry.observation import OBSERVED, has_moved, observation_of, rating_of
from shared.conversation.corrections import source_of
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.process.clock import wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.versions.state import State
from shared.wire.codec import msgpack_encode
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Feedback, HandoffRequest
from shared.wire.outcome import Response
from shared.wire.reports import Observation
from shared.wire.session_key import SessionKey
from shared.wire.topics import BROADCAST_PARTITION

_MOST_SENDING: Final = 256
_MOST_KEPT: Final = 10_000
_MOST_CONVERSATIONS: Final = 20_000


@dataclass(slots=True, kw_only=True)
class Observing:
    """Publishes observations; owned by the gateway's event loop. Keeps the most recent answers for later ratings, and
    the lane of each conversation's last answer. `state` returns the registry's current state."""

    producer: Producer
    topic: str
    state: Callable[[], State]
    sending: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _answers: OrderedDict[str, Observation] = field(default_factory=OrderedDict)
    _lanes: OrderedDict[str, Lane] = field(default_factory=OrderedDict)

    def end(self, entry: Entry, response: Response) -> None:
        """Publish how an answer of the canary or control lane ended."""
        conversation, to = entry.request.session.digest, entry.publication.destination
        before = self._lanes.pop(conversation, None)
        seen = observation_of(entry, response, int(wire_unix_ms()), moved=has_moved(entry, before))
        self._lanes[conversation] = CHAMPION if seen is not None and seen.censored else to.lane
        if len(self._lanes) > _MOST_CONVERSATIONS:
            self._lanes.popitem(last=False)
        if seen is not None:
            self._keep(seen)
            self._write(seen, entry.request.caller)

    def receive(self, message: HandoffRequest | Feedback, caller: Caller) -> None:
        """Publish that a customer rated such an answer, or asked for a person by a request.

        An answer that ended at another gateway is named without a revision; the rollout's controller has that gateway's
        observation of it.
        """
        if isinstance(message, Feedback):
            self._rate(message, caller)
        elif (seen := self._ended_elsewhere("", caller.session)) is not None:
            self._write(msgspec.structs.replace(seen, handed_over=True), caller)

    def _rate(self, feedback: Feedback, caller: Caller) -> None:
        """Publish the rating of an answer if it has changed."""
        session = caller.session
        answer, verdict = self._answers.get(feedback.response_id), verdict_of(feedback)
        answer = answer or self._ended_elsewhere(feedback.response_id, session)
        if answer is None or verdict is None or answer.conversation != session.digest:
            return
        if answer.answered_by not in {"", answer.revision}:  # another version's text is no evidence of this one
            return
        rated = rating_of(answer, "up" if verdict == "resolved" else "down", int(wire_unix_ms()))
        if rated.rating != answer.rating:
            if rated.revision:
                self._keep(rated)
            self._write(rated, caller)

    def _ended_elsewhere(self, response_id: str, session: SessionKey) -> Observation | None:
        """Return an observation for an answer that ended at another gateway; None if the conversation's lane is not
        observed."""
        state = self.state()
        if (lane := state.lane(session)) not in OBSERVED:
            return None
        return Observation(
            response_id=response_id,
            conversation=session.digest,
            lane=lane,
            revision="",
            epoch=state.epoch,
            unix_ms=int(wire_unix_ms()),
            bucket="short",
        )

    def _keep(self, seen: Observation) -> None:
        self._answers[seen.response_id] = seen
        if len(self._answers) > _MOST_KEPT:
            self._answers.popitem(last=False)

    def _write(self, seen: Observation, caller: Caller | None) -> None:
        if caller is not None and (seen.rating == "down" or seen.cancelled or seen.handed_over):
            rule, source = self.state().rule, source_of(caller.session, caller.subject, caller.address)
            digest = blake2b(f"{rule.salt if rule else ''}\0{source}".encode(), digest_size=8)
            seen = msgspec.structs.replace(seen, customer=digest.hexdigest())
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
