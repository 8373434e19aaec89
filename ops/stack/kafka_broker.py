"""A real Apache Kafka node from its Maven artifacts, without a container or root. For tests and `replyline bench`.

    with KafkaBroker() as broker:
        connect(broker.bootstrap)

Measured on two cores: 23 s to install once, 1 s to format, 2.5 s to answer metadata, 0.6 s to stop, 300 MB.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ops.stack.owned_directory import OwnedDirectory
from ops.stack.processes import Child, ServiceError, free_port

POM: Final = Path(__file__).parent / "kafka" / "pom.xml"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "kafka-libs"
INSTALL_COMMAND: Final = "apt-get install openjdk-17-jre-headless maven"


def find_java() -> str | None:
    """Return the `java` of JAVA_HOME, otherwise the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")


def libs_dir() -> Path:
    """Return the folder of the jars. Its name is a digest of the pom, so that a changed pom never uses old jars."""
    return CACHE / hashlib.sha256(POM.read_bytes()).hexdigest()[:12]


def install(*, timeout_s: float = 600.0) -> Path:
    """Copy Kafka's jars into the cache unless they are there. The copy is atomic, even if two processes do it at the
    same time.

    Raises `ServiceError` with the command to type if Maven is missing or fails.
    """
    target = libs_dir()
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceError(f"Maven is missing, and Apache Kafka is installed with it. Type: {INSTALL_COMMAND}")
    CACHE.mkdir(parents=True, exist_ok=True)
    print("kafka: installing Apache Kafka into .cache/kafka-libs (43 MB, once)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="partial-") as partial:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}/libs"]
        command = [maven, "-q", "-B", "-f", str(POM), *goal]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if done.returncode != 0:
            reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip())
            raise ServiceError(f"Maven could not fetch Apache Kafka: {reason}. Type: {' '.join(command)}")
        try:
            Path(partial, "libs").rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster, with the same jars
                raise
    return target


@dataclass(slots=True)
class KafkaBroker:
    """One KRaft node on two free ports of 127.0.0.1, with its log in a temporary directory. If the process is killed
    before it can remove the directory, the next one removes it.

    `settings` overrides any line of server.properties. Topics are not created automatically.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    heap_mb: int = 256
    port: int = 0
    node_id: int = 1
    controller_port: int = 0
    # Random, so that another broker on our port is not mistaken for this one.
    cluster_id: str = field(default_factory=lambda: base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
    data: OwnedDirectory | None = None  # the topics' segments, after the start
    _child: Child | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        """The id of the node's process, after the start."""
        assert self._child is not None, "the node is not started"
        return self._child.process.pid

    def start(self, *, timeout_s: float = 60.0) -> Self:
        """Install if necessary, format on the first start, and wait until the broker answers metadata requests."""
        try:
            self._wait_ready(self.launch(), timeout_s)
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> Child:
        """Start a broker without waiting: one node of several answers only when it has found the others."""
        java, libs = find_java(), install()
        if java is None:
            raise ServiceError(f"Java is missing, and Apache Kafka runs on it. Type: {INSTALL_COMMAND}")
        if self.data is None:
            self.port, self.controller_port = self.port or free_port(), self.controller_port or free_port()
            self.data = OwnedDirectory("replyline-kafka-")
            self._format(java, libs, self.data.path)
        self._child = self._run(java, libs, self.data.path)
        return self._child

    def _wait_ready(self, child: Child, timeout_s: float) -> None:
        if not child.wait_until(lambda: metadata_of(self) is not None, timeout_s=timeout_s, poll_s=0.1):
            raise ServiceError(f"Apache Kafka did not start: {self.log_tail()}")

    def _run(self, java: str, libs: Path, data: Path) -> Child:
        fast_start = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
        heap = ["-Xms128m", f"-Xmx{self.heap_mb}m"]
        node = ["-cp", f"{libs}/*", "kafka.Kafka", str(data / "server.properties")]
        return Child.start([java, *fast_start, *heap, *node], log=data / "broker.log")

    def _format(self, java: str, libs: Path, data: Path) -> None:
        properties = data / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties(data).items()))
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", str(properties)]
        command = [java, "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", f"{libs}/*", *tool]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode != 0:
            raise ServiceError(f"Apache Kafka could not format its log directory: {done.stderr.strip()[-500:]}")

    def _properties(self, data: Path) -> dict[str, str]:
        listener, controller = f"PLAINTEXT://127.0.0.1:{self.port}", f"127.0.0.1:{self.controller_port}"
        return {
            # Kafka's default of 128 MiB would be half of the heap, which is then collected completely every second
            # under load.
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{self.node_id}@{controller}",
            "listeners": f"{listener},CONTROLLER://{controller}",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(data / "log"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            **self.settings,
        }

    def log_tail(self, *, lines: int = 5) -> str:
        """Return the end of the broker's log, for an error message."""
        log = None if self.data is None else self.data.path / "broker.log"
        if log is None or not log.exists():
            return "it logged nothing"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    def halt(self, *, kill: bool = False) -> None:
        """Stop the process (SIGTERM, then SIGKILL; `kill`: SIGKILL immediately) and keep its data: the start of an
        outage."""
        if self._child is not None:
            if kill:
                self._child.kill()
            else:
                self._child.stop()
            self._child = None

    def restart(self, *, kill: bool = False) -> Self:
        """Start a new process with the same ports and the same data. After `halt()` this ends the outage."""
        self.halt(kill=kill)
        return self.start()

    def stop(self) -> None:
        """Stop the process and remove its data. May be called again."""
        self.halt()
        if self.data is not None:
            self.data.remove()
            self.data = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def metadata_of(node: KafkaBroker, *, timeout_s: float = 3.0) -> Any | None:
    """Return a node's view of its cluster, as confluent-kafka's `ClusterMetadata`; None while it does not answer, is
    not registered, or another broker uses its port."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    asked: dict[str, str | int | float | bool] = {"bootstrap.servers": node.bootstrap, "log_level": 0}
    try:
        found: Any = AdminClient({**asked, "reconnect.backoff.ms": 50}).list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    return found if found.cluster_id == node.cluster_id and node.node_id in found.brokers else None
