"""Choose each request's lane and version, by the registry and by the workers that are there."""

from dataclasses import dataclass

from gateway.admission.lanes import LaneAdmissions
from gateway.request.entry import Publication
from gateway.request.route import Route, route, route_in
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.telemetry import metrics
from shared.versions.registry import Registry
from shared.versions.state import State
from shared.wire.lanes import Lane
from shared.wire.messages import Bucket
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey

_OTHER = "other"
_NONE = "none"


@dataclass(slots=True)
class Routing:
    """Owned by the gateway's event loop. All gateways that have read the same registry choose alike."""

    registry: Registry
    admissions: LaneAdmissions

    @property
    def state(self) -> State:
        """Return the registry's state that holds now."""
        return self.registry.state_at(wire_unix_ms())

    def choose(self, session: SessionKey, bucket: Bucket) -> Route:
        """Return the way of a conversation's request."""
        state, now = self.state, now_unix_ms()

        def is_live(lane: Lane) -> bool:
            return self.admissions.is_live(lane, bucket, now)

        return route(state, session, is_live)

    def through(self, lane: Lane) -> Route:
        """Return the way through a lane, whatever the rule says."""
        return route_in(self.state, lane)

    def count_asked(self, lane: Lane, bucket: Bucket) -> None:
        """Count a request that is asked of a lane, whether its workers get it or not."""
        work_ms = self.admissions.demand.ask(lane, bucket)
        metrics.asked.labels(bucket).inc()
        metrics.asked_work.labels(bucket).inc(work_ms / 1_000)

    def count_placed(self, asked: Publication, lane: Lane | None) -> None:
        """Count where admission has put a request: None, not with the workers. Another lane than its own is asked in
        its stead."""
        if lane == asked.route.lane:
            return
        self.admissions.demand.turn_away(asked.route.lane, asked.bucket)
        if lane is not None:
            self.count_asked(lane, asked.bucket)

    def count_request(self, taken: Route) -> None:
        """Count a request that goes to the workers."""
        metrics.lane_requests.labels(taken.lane, self._label(taken.revision)).inc()

    def count_answer(self, lane: Lane, response: Response) -> None:
        """Count an answer by the lane that its request took, and the version that wrote it."""
        metrics.lane_answers.labels(lane, self._label(response.revision), response.status).inc()

    def _label(self, revision: str | None) -> str:
        """Return a version's name as a label: of those that the registry does not know there may be too many."""
        if revision is None:
            return _NONE
        return revision if revision in self.registry.versions else _OTHER
