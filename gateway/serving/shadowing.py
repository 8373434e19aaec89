"""Ask a share of the customers' questions again in the shadow lane. No customer sees those answers.

Nothing is stored beyond what Kafka stores of any request, so no consent is needed. A conversation erased before its
answer has ended is not asked again. No other step waits for shadow requests, and under load they are dropped first.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from gateway.destination.choose import View
from gateway.destination.gate import AdmissionGate
from gateway.kafka.request_publisher import RequestPublisher
from gateway.request.entry import Entry
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.process.clock import wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import task_failed
from shared.versions.state import Rule
from shared.wire.cloud_events import request_headers
from shared.wire.codec import msgpack_encode
from shared.wire.lanes import CHAMPION, SHADOW
from shared.wire.messages import ChatRequest
from shared.wire.outcome import BY_MODEL, Response
from shared.wire.requests import seed_of
from shared.wire.shadow import LiveAnswer

_DEADLINE_MS: Final = 10_000
_MOST_OPEN: Final = 2_000
_MOST_SENDING: Final = 64
_ENDED: Final = frozenset({"stop", "max_output_tokens"})


@dataclass(slots=True, kw_only=True)
class Shadowing:
    """Publishes shadow requests.

    Attributes:
        producer: separate from the questions' producer, because a producer that fails to deliver is replaced and
            questions would wait for that
        open: the questions of the share whose answers have not ended
    """

    publisher: RequestPublisher
    producer: Producer
    admission_gate: AdmissionGate
    open: dict[str, None] = field(default_factory=dict)
    sending: Tasks = field(default_factory=lambda: Tasks(task_failed))

    def keep(self, entry: Entry, view: View) -> None:
        """Remember a question sent to the workers, if its conversation belongs to the share and the shadow lane has a
        live worker."""
        to = entry.publication.destination
        share = view.state.shadow_share
        if to.lane != CHAMPION or not view.is_live(SHADOW, to.bucket):
            return
        if Rule(salt=SHADOW, share=0.0).point(entry.request.session) < share:
            if len(self.open) >= _MOST_OPEN:
                del self.open[next(iter(self.open))]
            self.open[entry.response_id] = None

    def end(self, entry: Entry, response: Response) -> None:
        """Ask the shadow lane after the champion's model has completed an answer."""
        if entry.response_id not in self.open:
            return
        del self.open[entry.response_id]
        if response.lane not in {None, CHAMPION}:
            return
        if response.source not in BY_MODEL or response.reason not in _ENDED:
            return
        if len(self.sending) < _MOST_SENDING and self.admission_gate.is_calm() and not self.publisher.away():
            live = LiveAnswer.from_outcome(entry.response_id, response)
            self.sending.start(self._send(entry, self.publisher.request(entry), live))
        else:
            metrics.shadowed.labels("dropped").inc()

    async def _send(self, entry: Entry, request: ChatRequest, live: LiveAnswer) -> None:
        """Send a request together with the answer that its customer got, without trace, metadata and consent."""
        state, publisher = self.admission_gate.state, self.publisher
        deadline = int(wire_unix_ms()) + _DEADLINE_MS
        request = msgspec.structs.replace(
            request,
            seed=seed_of(request),
            id=f"{request.id}.{SHADOW}",
            deadline_unix_ms=deadline,
            first_token_unix_ms=deadline,
            revision=state.aliases.get(SHADOW),
            epoch=state.epoch,
            answered=live,
            traceparent=None,
            metadata={},
            consent=None,
        )
        record = Outgoing(
            publisher.topics.requests(entry.publication.destination.bucket, SHADOW),
            msgpack_encode(request),
            key=entry.request.session.record_key,
            headers=request_headers(request, source=publisher.source),
        )
        try:
            await self.producer.enqueue(record)
        except (BrokerUnavailable, ProtocolError):
            metrics.shadowed.labels("dropped").inc()
        else:
            metrics.shadowed.labels("sent").inc()
