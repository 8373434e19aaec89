"""Ask the next rung of the ladder where a lane's workers have given a request up, before anything of it is shown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.kafka.request_publisher import RequestPublisher
from gateway.request.answer import FallbackReason
from gateway.request.entry import Entry
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.routing import Routing
from shared.errors import BrokerUnavailable, ProtocolError
from shared.telemetry.logs import get_logger

log = get_logger()


@dataclass(slots=True, kw_only=True)
class Descending:
    """Owned by the gateway's event loop. `descend`, and where it returns True `ask`."""

    publisher: RequestPublisher
    admission_gate: AdmissionGate
    routing: Routing

    def descend(self, entry: Entry, now: float) -> bool:
        """Give a request to a lower rung that can answer it in the time left; return whether there is one. Of a request
        that another gateway accepted too little is known to ask again."""
        publication = entry.publication
        if publication.asked is None:
            return False
        partition_of = partial(self.publisher.partition_of, entry)
        lane = self.admission_gate.place_below(entry, partition_of, now)
        if lane is None:
            return False
        self.routing.count_asked(lane, publication.bucket)
        publication.route, publication.partition = self.routing.through(lane), partition_of(lane)
        self.routing.count_request(publication.route)
        return True

    async def ask(self, entry: Entry, fall_back: Callable[[Entry, FallbackReason], None]) -> None:
        """Publish a request in its new lane."""
        publication = entry.publication
        assert publication.asked is not None
        try:
            delivery = await self.publisher.enqueue(entry, publication.asked)
            publication.place = await self.publisher.await_delivery(entry, delivery)
        except (BrokerUnavailable, ProtocolError) as error:
            log.warning("publish_failed", request_id=entry.response_id, cause=str(error))
            self.admission_gate.withdraw(entry)
            if not entry.answer.done:
                fall_back(entry, "broker")
