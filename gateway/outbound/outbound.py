"""Carry out what the gateways post to help desks: for each, the errands of one topic, shared by a group."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial

from gateway.outbound.calls import Calls
from gateway.outbound.errands import CarryOut, Errands
from gateway.outbound.signed_webhook import SignedWebhook
from gateway.outbound.standard_webhook import handoff_event
from shared.conversation.handoffs import decode_handoff
from shared.errors import ProtocolError
from shared.kafka import GroupReader, Record
from shared.process.tasks import Tasks
from shared.settings import Settings
from shared.telemetry import metrics


class Outbound:
    """The errands of every help desk that is set up."""

    def __init__(self, settings: Settings, source: str) -> None:
        self._group = partial(GroupReader, settings.kafka, client_id=source, unhurried=True)
        self._prefix = settings.kafka.topic_prefix
        self._calls: list[Calls] = []
        self._errands: list[Errands] = []
        handoff = settings.handoff
        if handoff.webhook_url:
            webhook = SignedWebhook(handoff, self.calls({}), "replyline handoffs list", metrics.webhooks)
            self.add("webhook", settings.kafka.topics.handoffs, partial(post_handoff, webhook))

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


async def post_handoff(webhook: SignedWebhook, record: Record, *, again: bool) -> None:
    """Return when the record's hand-off is taken or given up. Its id is the same `again`."""
    del again
    try:
        handoff = decode_handoff(record.value)
    except ProtocolError:
        metrics.records_ignored.labels("handoff").inc()
        return
    await webhook.deliver(handoff.id, handoff_event(handoff), handoff.created_unix_ms)
