"""Report this worker's free capacity to the gateways, every `interval_s` and soon after a large change."""

import asyncio
import os
import re
import secrets
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import msgspec

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.process.clock import wire_unix_ms
from shared.records.deliveries import Partition
from shared.telemetry.availability import Availability
from shared.telemetry.faults import contained
from shared.wire.codec import msgpack_encode
from shared.wire.fields import MAX_ID_CHARS, Revision
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.reports import Refusal, WorkerReport
from shared.wire.topics import BROADCAST_PARTITION, TopicNames, in_lane
from workers.schedule.costs import CostModel
from workers.schedule.outlook import Outlook

REPORT_INTERVAL_S: Final = 0.5
# minimum interval between reports; together with the engine thread's delay this gives 50 ms
_LEAST_S: Final = 0.025
# interval for checking whether the group has reassigned the partitions
_PARTITIONS_S: Final = 0.2
_LEAVE_S: Final = 1.0
_HASH_CHARS: Final = 8
_RANDOM_BYTES: Final = 4


def worker_name(instance_id: str = "", device: str = "", *, lane: Lane = CHAMPION) -> str:
    """Return an id that no other running worker has: `w-INSTANCE` of a static member, else `w-PID.RANDOM-HOST`.

    Kafka lets only one member of a lane's group have an instance id. Containers have the same PID, and the same host
    name too if they share the host's network.

    Args:
        device: the GPU or slice that the worker computes on: `w-PID.RANDOM.GPU1a2b3c4d-HOST`, if that is short enough.
        lane: the lane that it serves; part of a static member's id, except the champion's.
    """
    if instance_id:
        return _fitted(f"w-{in_lane(instance_id, lane)}")
    process, host = f"{worker_prefix(os.getpid())}{secrets.token_hex(_RANDOM_BYTES)}", socket.gethostname()
    named = f"{process}.{device.replace('-', '')}-{host}"
    return _fitted(named if device and len(named) <= MAX_ID_CHARS else f"{process}-{host}")


def worker_prefix(pid: int) -> str:
    """Return how the id of a process's worker begins, if it is no static member."""
    return f"w-{pid}."


def _fitted(name: str) -> str:
    """Return a name as a valid identifier, with its hash if that changes it: names that differ stay different."""
    valid = re.sub(r"[^A-Za-z0-9_.:-]", "-", name)
    if valid == name and len(name) <= MAX_ID_CHARS:
        return name
    return f"{valid[: MAX_ID_CHARS - _HASH_CHARS - 1]}-{sha256(name.encode()).hexdigest()[:_HASH_CHARS]}"


@dataclass(slots=True, kw_only=True)
class CapacityPublisher:
    """Publishes the worker's reports. All attributes belong to the event loop.

    Attributes:
        revisions: returns the loaded versions, the one that serves first.
        refused: returns the versions that should be loaded and are not.
        costs: returns the costs of the model that serves.
        outlook: returns the newest outlook; None before the first.
        changed: set when the outlook has changed.
        partitions: returns the partitions that are read now; None during a rebalance.
    """

    producer: Producer
    topics: TopicNames
    worker_id: str
    buckets: tuple[Bucket, ...]
    lane: Lane = CHAMPION
    pool: str = ""
    revisions: Callable[[], tuple[Revision, ...]] = tuple
    refused: Callable[[], dict[Revision, Refusal]] = dict
    costs: Callable[[], CostModel | None] = lambda: None
    outlook: Callable[[], Outlook | None]
    changed: asyncio.Event
    partitions: Callable[[], Collection[Partition] | None]
    interval_s: float = REPORT_INTERVAL_S
    _reports: Availability = field(default_factory=lambda: Availability("capacity reports"))

    async def run(self) -> None:
        """Report until cancelled."""
        time = asyncio.get_running_loop().time
        reported: tuple[Outlook, Collection[Partition] | None] | None = None
        named: tuple[object, object] = (), {}
        reported_s = float("-inf")
        while True:
            self.changed.clear()
            outlook, reads = self.outlook(), self.partitions()
            if outlook is None:
                await self.changed.wait()
                continue
            changed = reported is None or reads != reported[1] or outlook.differs_much(reported[0])
            changed = changed or named != (self.revisions(), self.refused())
            wait_s = reported_s + (_LEAST_S if changed else self.interval_s) - time()
            if wait_s <= 0:
                reported, reported_s, named = (outlook, reads), time(), (self.revisions(), self.refused())
                with contained("task", task="capacity"):  # the next report is due after the interval
                    await self._publish(msgpack_encode(self._report(outlook, reads or ())))
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(wait_s, _PARTITIONS_S)):
                        await self.changed.wait()

    def _report(self, outlook: Outlook, partitions: Collection[Partition]) -> WorkerReport:
        report = outlook.report(self.worker_id, self._by_bucket(partitions), wire_unix_ms())
        versions = {"revisions": self.revisions(), "refused": self.refused()}
        costs = self.costs()
        law = costs and costs.law(prompt_tokens=outlook.prompt_tokens, output_tokens=outlook.output_tokens)
        own = {"lane": self.lane, "pool": self.pool, "host": socket.gethostname(), "law": law}
        return msgspec.structs.replace(report, **own, **versions)

    def _by_bucket(self, partitions: Collection[Partition]) -> dict[Bucket, list[int]]:
        """Return this worker's partitions of each bucket that it serves."""
        return {
            bucket: sorted(number for topic, number in partitions if topic == self.topics.requests(bucket, self.lane))
            for bucket in self.buckets
        }

    async def leave(self) -> None:
        """Make the gateways forget this worker, with a record without a value, which compaction removes too.

        Without Kafka the gateways notice that its reports stop.
        """
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._publish(None)
        except TimeoutError:
            pass

    async def _publish(self, value: bytes | None) -> None:
        """Publish a report. A report that fails is not retried, since the next one replaces it."""
        try:
            key, partition = self.worker_id.encode(), BROADCAST_PARTITION
            await self.producer.publish(Outgoing(self.topics.workers, value, key=key, partition=partition))
        except (BrokerUnavailable, ProtocolError) as error:
            self._reports.mark_down(str(error), action="the gateways admit without them")
        else:
            self._reports.mark_up()
