"""What this worker can still take on, to the gateways: every `interval_s`, and soon after it has changed much."""

import asyncio
import os
import re
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from shared.clock import now_unix_ms
from shared.codec import msgpack_encode
from shared.errors import BrokerUnavailable, ProtocolError
from shared.fields import MAX_ID_CHARS
from shared.kafka import Outgoing, Producer
from shared.logs import get_logger
from shared.messages import Bucket
from shared.topics import BROADCAST_PARTITION, TopicNames
from workers.offsets import Partition
from workers.outlook import Outlook

# No more than so many reports a second, however much changes.
_POLL_S: Final = 0.2
_LEAVE_S: Final = 1.0

log = get_logger()


def worker_name(instance_id: str = "") -> str:
    """The static member's name, else one that no other worker has now: in containers every process has the same id."""
    name = f"w-{instance_id or f'{os.getpid()}-{socket.gethostname()}'}"
    return re.sub(r"[^A-Za-z0-9_.:-]", "-", name)[:MAX_ID_CHARS]


@dataclass(slots=True, kw_only=True)
class CapacityPublisher:
    """`outlook` gives the newest one, None as long as there is none, `partitions` those that are read now (None: a
    rebalance goes on); both are called on the event loop."""

    producer: Producer
    topics: TopicNames
    worker_id: str
    buckets: tuple[Bucket, ...]
    interval_s: float
    outlook: Callable[[], Outlook | None]
    partitions: Callable[[], Collection[Partition] | None]
    _failing: bool = False

    async def run(self) -> None:
        """Report until cancelled."""
        told: tuple[Outlook, Collection[Partition] | None] | None = None
        told_s = float("-inf")
        while True:
            outlook, reads = self.outlook(), self.partitions()
            if outlook is not None:
                due = time.monotonic() - told_s >= self.interval_s
                if due or told is None or reads != told[1] or outlook.differs_much(told[0]):
                    told, told_s = (outlook, reads), time.monotonic()
                    report = outlook.report(self.worker_id, self._by_bucket(reads or ()), now_unix_ms())
                    await self._publish(msgpack_encode(report))
            await asyncio.sleep(_POLL_S)

    def _by_bucket(self, partitions: Collection[Partition]) -> dict[Bucket, list[int]]:
        """Every bucket that is served, with those of its partitions that are this worker's."""
        return {
            bucket: sorted(number for topic, number in partitions if topic == self.topics.requests(bucket))
            for bucket in self.buckets
        }

    async def leave(self) -> None:
        """Have the gateways forget this worker: a record without a value, which compaction removes as well. Without
        Kafka they find out by its silence."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._publish(None)
        except TimeoutError:
            pass

    async def _publish(self, value: bytes | None) -> None:
        """A report that is not taken is not sent again: the next one says more."""
        try:
            key, partition = self.worker_id.encode(), BROADCAST_PARTITION
            await self.producer.publish(Outgoing(self.topics.workers, value, key=key, partition=partition))
        except (BrokerUnavailable, ProtocolError) as error:
            if not self._failing:
                log.warning("report_not_published", cause=str(error), action="the gateways admit without it")
            self._failing = True
        else:
            self._failing = False
