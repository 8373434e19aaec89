"""The gateway with its parts, which share one table of requests in flight and one of connections."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from gateway.access.jwks import Jwks
from gateway.admission.control import AdmissionLimits
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.people import People
from gateway.request.cursor import CursorKey
from gateway.request.due_times import DueTimes
from gateway.request.inflight import InflightTable
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.answering import Answering
from gateway.serving.asking import Asking
from gateway.serving.deadlines import Deadlines
from gateway.serving.erasing import Erasing
from gateway.serving.gateway import Gateway
from gateway.serving.observing import Observing
from gateway.serving.receiving import Receiving
from gateway.serving.resuming import Resuming
from gateway.serving.sending import Sending
from gateway.serving.shadowing import Shadowing
from gateway.session.connections import Connections
from gateway.session.rate_limits import RateLimits
from gateway.session.recall import Recall
from gateway.telemetry.tracer import Tracer
from shared.conversation.history import History
from shared.faq.live import LiveFaq
from shared.process.tasks import Tasks
from shared.telemetry.faults import task_failed

_IDLE_POLL_S: Final = 0.02


@dataclass(kw_only=True)
class ServingWing:
    """The gateway with its parts, which share one table of requests in flight and one of connections."""

    limits: AdmissionLimits
    token_count: TokenCount
    faq: LiveFaq
    history: History
    publisher: RequestPublisher
    admission_gate: AdmissionGate
    rate_limits: RateLimits
    jwks: Jwks | None
    key: CursorKey
    recall: Recall
    people: People
    tracer: Tracer
    shadowing: Shadowing
    observing: Observing
    claims: Claims
    inflight: InflightTable
    connections: Connections = field(init=False, default_factory=Connections)
    answering: Answering = field(init=False)
    sending: Sending = field(init=False)
    receiving: Receiving = field(init=False)
    deadlines: Deadlines = field(init=False)
    erasing: Erasing = field(init=False)
    gateway: Gateway = field(init=False)
    _beside: Tasks = field(init=False, default_factory=lambda: Tasks(task_failed))

    def __post_init__(self) -> None:
        self.answering = self._make_answering()
        self.sending = self._make_sending()
        self.receiving = Receiving(
            inflight=self.inflight,
            connections=self.connections,
            admission_gate=self.admission_gate,
            tracer=self.tracer,
            sending=self.sending,
            answering=self.answering,
        )
        self.deadlines = Deadlines(due_times=DueTimes(self.inflight), answering=self.answering)
        self.erasing = Erasing(
            history=self.history,
            publisher=self.publisher,
            inflight=self.inflight,
            answering=self.answering,
            people=self.people,
            beside=self._beside,
        )
        self.gateway = Gateway(
            rate_limits=self.rate_limits,
            jwks=self.jwks,
            inflight=self.inflight,
            connections=self.connections,
            people=self.people,
            observing=self.observing,
            resuming=self._make_resuming(),
            asking=self._make_asking(),
            erasing=self.erasing,
        )

    def _make_answering(self) -> Answering:
        return Answering(
            inflight=self.inflight,
            connections=self.connections,
            publisher=self.publisher,
            admission_gate=self.admission_gate,
            recall=self.recall,
            people=self.people,
            tracer=self.tracer,
            faq=self.faq,
            history=self.history,
            beside=self._beside,
            shadowing=self.shadowing,
            observing=self.observing,
            claims=self.claims,
        )

    def _make_resuming(self) -> Resuming:
        return Resuming(
            key=self.key,
            max_inflight=self.limits.max_inflight,
            recall=self.recall,
            inflight=self.inflight,
            connections=self.connections,
            people=self.people,
            tracer=self.tracer,
            answering=self.answering,
            receiving=self.receiving,
            erasing=self.erasing,
            deadlines=self.deadlines,
            claims=self.claims,
        )

    def _make_asking(self) -> Asking:
        return Asking(
            limits=self.limits,
            inflight=self.inflight,
            connections=self.connections,
            admission_gate=self.admission_gate,
            tracer=self.tracer,
            erasing=self.erasing,
            deadlines=self.deadlines,
            sending=self.sending,
        )

    def _make_sending(self) -> Sending:
        return Sending(
            token_count=self.token_count,
            quotas=self.rate_limits.quotas,
            people=self.people,
            admission_gate=self.admission_gate,
            claims=self.claims,
            publisher=self.publisher,
            answering=self.answering,
            shadowing=self.shadowing,
        )

    async def idle(self) -> None:
        """Wait until no request is in flight."""
        while len(self.inflight) or len(self._beside) or len(self.people):  # noqa: ASYNC110 - asked once in a process's life
            await asyncio.sleep(_IDLE_POLL_S)
