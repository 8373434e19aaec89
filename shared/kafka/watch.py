"""Watch whether Kafka is reachable, and find out why not, for the log and for `/ready`."""

import asyncio
from collections.abc import Callable
from typing import Final

from shared.kafka.broker.refusals import why_unreachable
from shared.settings.kafka import KafkaSettings
from shared.telemetry.availability import Availability

_POLL_S: Final = 0.25
_POLLS_BETWEEN_LOOKS: Final = 8


class KafkaWatch:
    """Polls `connected`, which returns whether this process's clients have a connection."""

    def __init__(self, settings: KafkaSettings, connected: Callable[[], bool]) -> None:
        self._settings = settings
        self._connected = connected
        self._was_connected = False
        self._kafka = Availability("kafka")
        self._absent = f"no Kafka at {settings.bootstrap_servers}"
        self.why = self._absent
        """The cause of the current outage."""

    @property
    def away(self) -> bool:
        """Return whether an outage has been logged."""
        return self._kafka.cause is not None

    def start_logging_outages(self) -> None:
        """Log outages after this call. Before it, the callers that make the first connection log them."""
        self._was_connected = True

    async def run(self) -> None:
        """Watch until cancelled; log one line when an outage begins and one when it ends."""
        polls = 0
        while True:
            await asyncio.sleep(_POLL_S)
            if self._connected():
                self._kafka.mark_up()
                polls, self.why = 0, self._absent
                continue
            if polls % _POLLS_BETWEEN_LOOKS == 0:
                self.why = await why_unreachable(self._settings) or self._absent
            polls += 1
            if self._was_connected:
                self._kafka.mark_down(self.why, action="retrying")
