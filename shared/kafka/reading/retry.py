"""Reading without an end: what cannot be read now is tried again, and that is said."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from shared.errors import BrokerUnavailable
from shared.kafka.broker.records import Record
from shared.process.clock import monotonic_s
from shared.telemetry.availability import Availability

_RETRY_S: Final = 0.2


async def read_on(what: str, read: Callable[[], Awaitable[list[Record]]], take: Callable[[list[Record]], None]) -> None:
    """Have each batch taken, until cancelled. `what` is read, as an operator is told of it while it cannot be."""
    outage = Availability(what)
    while True:
        try:
            records = await read()
        except BrokerUnavailable as error:
            outage.still(str(error), monotonic_s())
            await asyncio.sleep(_RETRY_S)
            continue
        take(records)
