"""Reading without an end: a read that fails is logged and tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from shared.errors import BrokerUnavailable
from shared.kafka.broker.records import Record
from shared.process.clock import monotonic_s
from shared.telemetry.availability import Availability

_RETRY_S: Final = 0.2


async def read_on(
    what: str, read: Callable[[], Awaitable[list[Record]]], handle: Callable[[list[Record]], None]
) -> None:
    """Read and handle batch after batch, until cancelled. `what` names it in the log while it cannot be read."""
    outage = Availability(what)
    while True:
        try:
            records = await read()
        except BrokerUnavailable as error:
            outage.still(str(error), monotonic_s())
            await asyncio.sleep(_RETRY_S)
            continue
        handle(records)
