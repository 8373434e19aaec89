"""Post each hand-off of `chat.handoffs` to the operator's address, again and again until it is taken."""

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.outbound.calls import CallError, Calls
from gateway.outbound.standard_webhook import handoff_event, signed
from shared.conversation.handoffs import Handoff, decode_handoff
from shared.errors import ProtocolError
from shared.kafka import Record
from shared.process.clock import wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0

log = get_logger()


@dataclass(slots=True, kw_only=True)
class HandoffWebhook:
    """A hand-off is given up `give_up_s` after it was asked for: it stays in Kafka, and `replyline handoffs` lists
    it."""

    url: str
    key: bytes
    give_up_s: float
    calls: Calls

    async def post(self, record: Record, *, again: bool) -> None:
        """Return when the record's hand-off has been taken, or is given up."""
        del again  # its id tells
        try:
            handoff = decode_handoff(record.value)
        except ProtocolError:
            metrics.records_ignored.labels("handoff").inc()
            return
        pause_s, cause = _FIRST_PAUSE_S, "it was asked for too long ago"
        while wire_unix_ms() < handoff.created_unix_ms + self.give_up_s * 1_000:
            cause = await self._try(handoff)
            if not cause:
                metrics.webhooks.labels("taken").inc()
                return
            metrics.webhooks.labels("failed").inc()
            log.warning("webhook_failed", handoff=handoff.id, cause=cause, again_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        metrics.webhooks.labels("given_up").inc()
        log.error("webhook_given_up", handoff=handoff.id, cause=cause, action="replyline handoffs list")

    async def _try(self, handoff: Handoff) -> str:
        """Return why it was not taken; nothing where it was."""
        body = handoff_event(handoff)
        headers = signed(self.key, handoff.id, body, int(wire_unix_ms() / 1_000))
        try:
            status, _ = await self.calls.call("POST", self.url, body, headers)
        except CallError as error:
            return str(error)
        return "" if 200 <= status < 300 else f"status {status}"  # noqa: PLR2004
