"""What nobody waits for any more, and what is erased: every worker reads all of `chat.cancels`."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from shared import metrics
from shared.clock import now_unix_ms
from shared.codec import decode_cancel
from shared.errors import BrokerUnavailable, ProtocolError
from shared.faults import contained
from shared.kafka import Outage, PartitionReader
from shared.messages import Cancel, ChatRequest, Erase
from shared.session_key import SessionKey

_RETRY_S = 0.2
_REMEMBERED_CANCELS = 10_000
_REMEMBERED_MS = 120_000.0


class RecentCancels:
    """The cancels of the last two minutes: one may come before its request.

    Each is of the very request that it names: by its id, by where its replies go (None: anywhere), and by when it was
    created (None: whenever), so that whoever asks for the same again has not been cancelled. By this process's clock
    alone: compared with the creation by the gateway's, a skew would lose a cancel. One whose request is read later
    still is lost, and costs its work: with the longest deadline of the defaults that is past by then.
    """

    def __init__(self, capacity: int = _REMEMBERED_CANCELS) -> None:
        self._capacity = capacity
        self._seen_unix_ms: OrderedDict[Cancel, float] = OrderedDict()

    def add(self, cancel: Cancel, now_unix_ms: float) -> None:
        self._seen_unix_ms[cancel] = now_unix_ms
        self._seen_unix_ms.move_to_end(cancel)
        if len(self._seen_unix_ms) > self._capacity:
            self._seen_unix_ms.popitem(last=False)

    def take(self, request: ChatRequest, now_unix_ms: float) -> bool:
        """Whether the request was cancelled lately; whatever cancelled it is forgotten."""
        names = [
            Cancel(request_id=request.id, reply_partition=partition, created_unix_ms=created)
            for partition in {None, request.reply_partition}
            for created in {None, request.created_unix_ms}
        ]
        seen = [self._seen_unix_ms.pop(name, None) for name in names]
        return any(each is not None and each >= now_unix_ms - _REMEMBERED_MS for each in seen)


async def read_cancels(
    reader: PartitionReader,
    *,
    cancel: Callable[[Cancel], bool],
    cancelled: RecentCancels,
    erase: Callable[[SessionKey, int], None],
) -> None:
    """Every worker reads all cancels, remembers those of requests it does not have for a while; and all erasures."""
    outage = Outage("kafka cancels")
    while True:
        try:
            records = await reader.read()
        except BrokerUnavailable as error:
            outage.still(str(error), time.monotonic())
            await asyncio.sleep(_RETRY_S)
            continue
        for record in records:
            with contained("record", offset=record.offset):
                try:
                    asked = decode_cancel(record.value)
                except ProtocolError:
                    metrics.records_ignored.labels("cancel").inc()
                    continue
                if isinstance(asked, Erase):
                    erase(SessionKey(asked.tenant, asked.session_id), asked.generation)
                elif not cancel(asked):
                    cancelled.add(asked, now_unix_ms())
