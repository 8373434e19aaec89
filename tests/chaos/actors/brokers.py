"""Brokers that are killed or whose disks fill up, and that start again."""

import asyncio
import resource
from collections.abc import Callable
from dataclasses import dataclass

from ops.stack.kafka_broker import KafkaBroker
from tests.chaos.actors.kafka_cluster import KafkaCluster


@dataclass(slots=True)
class Brokers:
    """The running brokers, by number from 0. `note` is called with each event."""

    kafka: KafkaBroker | KafkaCluster
    note: Callable[[str], None]
    disks_that_ended: int = 0

    async def kill(self, number: int, down_s: float) -> None:
        """Kill a broker, and bring it back later."""
        self.halt(number)
        await asyncio.sleep(down_s)
        await self.bring_back(number)

    def halt(self, number: int) -> None:
        """Kill a broker."""
        node = self._node(number)
        node.halt(kill=True)
        self.note(f"broker {node.node_id} killed")

    async def fill_disk(self, number: int, down_s: float) -> None:
        """Let no file of that process grow: Kafka receives EFBIG where a full disk returns ENOSPC, and treats either as
        a failed log folder. After `down_s` remove the limit and start the process again."""
        node = self._node(number)
        _, most = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (0, most))
        self.note(f"broker {node.node_id}: its disk is full")
        await asyncio.sleep(down_s)
        self.note(f"broker {node.node_id}: its disk has space again; it {'still runs' if node.running else 'ended'}")
        self.disks_that_ended += not node.running
        node.halt(kill=True)
        await self.bring_back(number)

    async def bring_back(self, number: int) -> None:
        """Start a broker with the log that it had; return when all replicas are in sync."""
        node = self._node(number)
        if isinstance(self.kafka, KafkaBroker):
            node.start()
            self.note("the broker ready")
            return
        node.launch()
        self.note(f"broker {node.node_id} started")
        await asyncio.to_thread(self.kafka.wait_in_sync)
        self.note(f"broker {node.node_id} back, all replicas in sync")

    def _node(self, number: int) -> KafkaBroker:
        return self.kafka if isinstance(self.kafka, KafkaBroker) else self.kafka.nodes[number]
