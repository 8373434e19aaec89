"""Commits what has become committable, every so often and once more at the end."""

import asyncio

from shared import metrics
from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader
from shared.offsets import OffsetTracker

INTERVAL_S = 0.1


async def commit_regularly(offsets: OffsetTracker, reader: GroupReader) -> None:
    while True:
        await asyncio.sleep(INTERVAL_S)
        await commit(offsets, reader)


async def commit(offsets: OffsetTracker, reader: GroupReader) -> None:
    """Commit now. What is refused or fails is committable again the next time."""
    ready = offsets.committable()
    if not ready:
        return
    try:
        committed = await reader.commit(ready)
    except BrokerUnavailable:
        committed = False
    if committed:
        offsets.committed(ready)
    else:
        metrics.commits_failed.inc()
