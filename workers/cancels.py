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
from shared.messages import Erase
from shared.session_key import SessionKey

_RETRY_S = 0.2
_REMEMBERED_CANCELS = 10_000
_REMEMBERED_MS = 120_000.0


class RecentIds:
    """The ids seen in the last two minutes, each with the reply partition that it was seen for (None: any): a cancel
    may come before its request.

    For so long the same id is the same request (`RecentAnswers`); whoever uses it again later asks anew. By this
    process's clock alone: compared with the creation by the gateway's, a skew would lose a cancel. One whose request is
    read later still is lost, and costs its work: with the longest deadline of the defaults that is past by then.
    """

    def __init__(self, capacity: int = _REMEMBERED_CANCELS) -> None:
        self._capacity = capacity
        self._seen_unix_ms: OrderedDict[tuple[str, int | None], float] = OrderedDict()

    def add(self, request_id: str, reply_partition: int | None, now_unix_ms: float) -> None:
        self._seen_unix_ms[request_id, reply_partition] = now_unix_ms
        self._seen_unix_ms.move_to_end((request_id, reply_partition))
        if len(self._seen_unix_ms) > self._capacity:
            self._seen_unix_ms.popitem(last=False)

    def take(self, request_id: str, reply_partition: int | None, now_unix_ms: float) -> bool:
        """Whether the id was seen lately for that partition, or for any; it is forgotten for both."""
        seen = [self._seen_unix_ms.pop((request_id, each), None) for each in (None, reply_partition)]
        return any(each is not None and each >= now_unix_ms - _REMEMBERED_MS for each in seen)


async def read_cancels(
    reader: PartitionReader,
    *,
    cancel: Callable[[str, int | None], bool],
    cancelled: RecentIds,
    erase: Callable[[SessionKey], None],
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
                    erase(SessionKey(asked.tenant, asked.session_id))
                elif not cancel(asked.request_id, asked.reply_partition):
                    cancelled.add(asked.request_id, asked.reply_partition, now_unix_ms())
