"""Post signed events to an address that the operator has set, and retry until each is accepted."""

import asyncio
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter

from gateway.outbound.calls import CallError, Calls
from gateway.outbound.standard_webhook import signed
from shared.process.clock import wire_unix_ms
from shared.settings.gateway import WebhookSettings
from shared.telemetry.logs import get_logger

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0

log = get_logger()


@dataclass(slots=True)
class SignedWebhook:
    """A webhook. `action` is the command that lists what was given up; `outcomes` counts taken, failed and given_up."""

    settings: WebhookSettings
    calls: Calls
    action: str
    outcomes: Counter

    async def deliver(self, event_id: str, body: bytes, created_unix_ms: float) -> bool:
        """Post an event until it is accepted or given up; return whether it was accepted. The secret is read again for
        each try."""
        pause_s, cause, named = _FIRST_PAUSE_S, "it was created too long ago", {self.settings.group: event_id}
        while (now_unix_ms := wire_unix_ms()) < created_unix_ms + self.settings.webhook_give_up_s * 1_000:
            try:
                headers = signed(self.settings.webhook_key(), event_id, body, int(now_unix_ms / 1_000))
                await self.calls.call("POST", self.settings.webhook_url, body, headers)
            except (CallError, ValueError) as error:
                cause = str(error)
            else:
                self.outcomes.labels("taken").inc()
                return True
            self.outcomes.labels("failed").inc()
            log.warning("webhook_failed", cause=cause, again_s=pause_s, **named)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        log.error("webhook_given_up", cause=cause, action=self.action, **named)
        self.outcomes.labels("given_up").inc()
        return False
