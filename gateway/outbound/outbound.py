"""Carry out what the gateways post to help desks: for each, the errands of one topic, shared by a group."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial

from gateway.outbound.calls import Calls
from gateway.outbound.errands import CarryOut, Errands
from gateway.outbound.handoff_webhook import HandoffWebhook
from shared.kafka import GroupReader
from shared.process.tasks import Tasks
from shared.settings import Settings


class Outbound:
    """The errands of every help desk that is set up."""

    def __init__(self, settings: Settings, source: str) -> None:
        self._group = partial(GroupReader, settings.kafka, client_id=source, unhurried=True)
        self._prefix = settings.kafka.topic_prefix
        self._calls: list[Calls] = []
        self._errands: list[Errands] = []
        handoff = settings.handoff
        if handoff.webhook_url:
            webhook = HandoffWebhook(
                url=handoff.webhook_url,
                key=handoff.webhook_key(),
                give_up_s=handoff.webhook_give_up_s,
                calls=self.calls({}),
            )
            self.add("webhook", settings.kafka.topics.handoffs, webhook.post)

    def calls(self, headers: Mapping[str, str]) -> Calls:
        """Return what calls a help desk, and is closed with the rest."""
        self._calls.append(Calls(headers))
        return self._calls[-1]

    def add(self, name: str, topic: str, carry_out: CarryOut) -> None:
        reader = self._group(topics=[topic], group=f"{self._prefix}replyline-{name}")
        self._errands.append(Errands(name, reader, carry_out))

    def start(self, tasks: Tasks) -> None:
        for errands in self._errands:
            tasks.start(errands.run(), errands.name)

    async def leave(self, tasks: Tasks) -> None:
        """Leave what is not done to the other gateways."""
        async with AsyncExitStack() as closing:
            for calls in self._calls:
                closing.push_async_callback(calls.close)
            for errands in self._errands:
                await tasks.cancel(errands.name)
                closing.push_async_callback(errands.leave)
