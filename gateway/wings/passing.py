"""The requests that the gateways forward."""

from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.forwarding.abandoned import AbandonedLanes
from gateway.forwarding.forwarding import ForwardingWing
from gateway.forwarding.router import Router
from gateway.serving.admission_gate import AdmissionGate
from shared.kafka import Producer
from shared.process.tasks import Tasks
from shared.settings import Settings


class PassingWing:
    """Forwards other services' requests from the inbox, and those that wait in abandoned lanes."""

    def __init__(
        self,
        settings: Settings,
        token_count: TokenCount,
        producer: Producer,
        source: str,
        *,
        admission_gate: AdmissionGate,
        claims: Claims,
    ) -> None:
        kafka = settings.kafka
        router = Router(
            topics=kafka.topics,
            admission_gate=admission_gate,
            claims=claims,
            token_count=token_count,
            defaults=settings.request_defaults,
            source=source,
        )
        inbox, group = kafka.topics.inbox, f"{kafka.topic_prefix}replyline-router"
        self._inbox = ForwardingWing(
            settings, producer, source, name="inbox", topics=[inbox], group=group, copy=router.copy
        )
        self._abandoned = AbandonedLanes(
            settings=settings, producer=producer, admissions=admission_gate.admissions, source=source
        )

    async def start(self, tasks: Tasks) -> None:
        await self._inbox.start(tasks)
        tasks.start(self._abandoned.watch(tasks), "abandoned lanes")

    async def leave(self, tasks: Tasks) -> None:
        """Leave what is not forwarded to the other gateways."""
        await tasks.cancel("abandoned lanes")
        await self._abandoned.leave(tasks)
        await self._inbox.leave(tasks)
