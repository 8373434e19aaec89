"""Three Kafka nodes, each broker and controller: what one of them keeps survives it. For `replyline chaos`.

    with KafkaCluster() as cluster:
        connect(cluster.bootstrap)
        cluster.nodes[0].halt(kill=True)

Topics that are created with a replication factor of three are acknowledged (`acks=all`) by two of them at least.
"""

import base64
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import ServiceError, free_port

NODES: Final = 3
_METADATA_KEY, _METADATA_VERSION = 3, 1
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
}


@dataclass(frozen=True, slots=True)
class Metadata:
    """What one node says of the cluster: the brokers' ids, and of each partition its replicas and those in sync."""

    brokers: tuple[int, ...]
    partitions: tuple[tuple[frozenset[int], frozenset[int]], ...]


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
                settings={**_SETTINGS, "controller.quorum.voters": voters},
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
            known = metadata_at("127.0.0.1", node.port)
            if known is None or len(known.brokers) < NODES:
                return False
            if any(replicas != in_sync for replicas, in_sync in known.partitions):
                return False
        return True

    def wait_in_sync(self, *, timeout_s: float = 90.0) -> None:
        """Block until then. Raises `ServiceError`."""
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


def metadata_at(host: str, port: int, *, timeout_s: float = 1.0) -> Metadata | None:
    """Of all topics, as the node there knows it; None without an answer."""
    client_id = b"replyline"
    header = struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, 1, len(client_id)) + client_id
    request = header + struct.pack(">i", -1)  # of all topics
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(4, socket.MSG_WAITALL)
            size = int.from_bytes(head, "big")
            reply = connection.recv(size, socket.MSG_WAITALL)
    except OSError:
        return None
    return read_metadata(reply) if len(head) == 4 and len(reply) == size else None  # noqa: PLR2004 - a length's bytes


def read_metadata(reply: bytes) -> Metadata:
    """A Metadata response, version 1, behind its length (Kafka's protocol guide)."""
    cursor = _Cursor(reply)
    cursor.number(4)  # the correlation id
    brokers = []
    for _ in cursor.array():
        brokers.append(cursor.number(4))
        cursor.text()
        cursor.number(4)
        cursor.text()
    cursor.number(4)  # the controller
    partitions = []
    for _ in cursor.array():
        cursor.number(2)
        cursor.text()
        cursor.number(1)
        for _ in cursor.array():
            cursor.number(2 + 4 + 4)  # error, number, leader
            replicas, in_sync = (frozenset(cursor.number(4) for _ in cursor.array()) for _ in range(2))
            partitions.append((replicas, in_sync))
    return Metadata(tuple(brokers), tuple(partitions))


class _Cursor:
    """Reads Kafka's types one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big", signed=True)

    def text(self) -> None:
        """Passed over; null has the length -1."""
        size = self.number(2)
        self._at += max(0, size)

    def array(self) -> Iterator[None]:
        for _ in range(self.number(4)):
            yield
