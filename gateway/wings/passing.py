"""The requests that the gateways forward."""

from gateway.forwarding.abandoned import AbandonedLanes
from gateway.forwarding.forwarding import ForwardingWing
from gateway.forwarding.router import Router
from gateway.serving.placing import Placing
from gateway.serving.routing import Routing
from shared.kafka import Producer
from shared.model.tokenizer import Tokenizer
from shared.process.tasks import Tasks
from shared.settings import Settings


class PassingWing:
    """Forwards other services' requests from the inbox, and those that wait in abandoned lanes."""

    def __init__(
        self,
        settings: Settings,
        tokenizer: Tokenizer,
        producer: Producer,
        source: str,
        *,
        routing: Routing,
        placing: Placing,
    ) -> None:
        kafka = settings.kafka
        router = Router(
            topics=kafka.topics,
            routing=routing,
            placing=placing,
            tokenizer=tokenizer,
            defaults=settings.request_defaults,
            max_input_tokens=settings.limits.max_input_tokens,
            source=source,
        )
        inbox, group = kafka.topics.inbox, f"{kafka.topic_prefix}replyline-router"
        self._inbox = ForwardingWing(
            settings, producer, source, name="inbox", topics=[inbox], group=group, copy=router.copy
        )
        self._abandoned = AbandonedLanes(
            settings=settings, producer=producer, admissions=routing.admissions, source=source
        )

    async def start(self, tasks: Tasks) -> None:
        await self._inbox.start(tasks)
        tasks.start(self._abandoned.watch(tasks), "abandoned lanes")

    async def leave(self, tasks: Tasks) -> None:
        """Leave what is not forwarded to the other gateways."""
        await tasks.cancel("abandoned lanes")
        await self._abandoned.leave(tasks)
        await self._inbox.leave(tasks)
