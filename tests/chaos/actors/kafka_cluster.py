"""Three Kafka nodes, each broker and controller, in three racks: what one of them keeps survives it.

    with KafkaCluster() as cluster:
        connect(cluster.bootstrap)
        cluster.nodes[0].halt(kill=True)

Topics that are created with a replication factor of three are acknowledged (`acks=all`) by two of them at least.
"""

import base64
import time
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from ops.stack.kafka_broker import KafkaBroker, metadata_of
from ops.stack.processes import ServiceError, free_port

NODES: Final = 3
_POLL_S: Final = 0.2
_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "5000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


def rack_of(node_id: int) -> str:
    return f"zone-{node_id}"


@dataclass(slots=True)
class KafkaCluster:
    """On free ports of 127.0.0.1, in temporary directories. Topics are not created by being named."""

    heap_mb: int = 256
    nodes: tuple[KafkaBroker, ...] = field(init=False)

    def __post_init__(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        controllers = [free_port() for _ in range(NODES)]
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(controllers, 1))
        self.nodes = tuple(
            KafkaBroker(
                settings={**_SETTINGS, "controller.quorum.voters": voters, "broker.rack": rack_of(node_id)},
                heap_mb=self.heap_mb,
                port=free_port(),
                node_id=node_id,
                controller_port=port,
                cluster_id=cluster_id,
            )
            for node_id, port in enumerate(controllers, 1)
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self, *, timeout_s: float = 90.0) -> Self:
        """Raises `ServiceError`."""
        try:
            for node in self.nodes:
                node.launch()
            self.wait_in_sync(timeout_s=timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def in_sync(self) -> bool:
        """Every node answers and knows all the others, and every partition has all of its replicas in sync."""
        for node in self.nodes:
            known = metadata_of(node)
            if known is None or len(known.brokers) < NODES:
                return False
            partitions = [one for topic in known.topics.values() for one in topic.partitions.values()]
            if any(set(one.replicas) != set(one.isrs) for one in partitions):
                return False
        return True

    def wait_in_sync(self, *, timeout_s: float = 90.0) -> None:
        """Block until the replicas are in sync. Raises `ServiceError`."""
        until_s = time.monotonic() + timeout_s
        while not self.in_sync():
            silent = [node for node in self.nodes if not node.running]
            if silent or time.monotonic() > until_s:
                node = (silent or self.nodes)[0]
                raise ServiceError(f"Apache Kafka's node {node.node_id} of {NODES} did not start: {node.log_tail()}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End the nodes and remove what they hold. May be called again."""
        for node in self.nodes:
            node.halt(kill=True)  # one that is asked to go waits for a controller, and the others go too
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
