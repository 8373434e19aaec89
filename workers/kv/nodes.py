"""A thread's connections to Redis: one, or one to each node of a cluster; and what is sent over them together."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis import Redis, RedisCluster
from redis.exceptions import ClusterError, MovedError, RedisClusterException, RedisError, ResponseError

from shared.redis.client import blocking_cluster, blocking_redis
from shared.settings.redis import RedisAddress

_UNDER_WAY: Final = 2  # commands of a stream


class KvNodes:
    """Connects with the first batch. Each read and each write of a socket takes at most `timeout_ms`."""

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._cluster: RedisCluster | None = None
        # Of a cluster it is the node that the URL names, and asks for nothing: it refuses a URL that is none.
        self._client = blocking_redis(settings, timeout_ms=timeout_ms)

    def client_of(self, key: str) -> Redis:
        """Return the client of a node. Raises `RedisError`."""
        if not self._settings.cluster:
            return self._client
        if self._cluster is None:
            self._cluster = blocking_cluster(self._settings, timeout_ms=self._timeout_ms)
        try:
            node = self._cluster.get_node_from_key(key)  # type: ignore[no-untyped-call]
            return self._cluster.get_redis_connection(node)
        except RedisClusterException as error:
            raise ClusterError(str(error)) from error

    def learn(self) -> None:
        """Ask the cluster's nodes, until one answers, who serves what; those that are asked in vain cost their time.
        One server is connected to anew: behind its address there may be another."""
        if self._cluster is None:
            self._client.close()
            return
        try:
            self._cluster.nodes_manager.initialize()
        except (RedisError, RedisClusterException, OSError):
            self.close()  # its first node is asked anew by the next batch

    def close(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


class Batch:
    """Commands that each name a key, sent together: in one write to each node, in their order there."""

    def __init__(self, nodes: KvNodes) -> None:
        self._nodes = nodes
        self._commands: list[tuple[str, tuple[Any, ...]]] = []

    def __len__(self) -> int:
        return len(self._commands)

    def add(self, key: str, *command: Any) -> None:
        self._commands.append((key, command))

    def execute(self) -> list[Any]:
        """Execute commands; return the replies in their order, errors among them. Sent again, once, where a slot has
        moved: each batch may be. Raises `RedisError`, `OSError`."""
        replies = self._sent()
        if any(isinstance(reply, MovedError) for reply in replies):
            self._nodes.learn()
            replies = self._sent()
        return replies

    def _sent(self) -> list[Any]:
        by_client: dict[int, tuple[Any, list[int]]] = {}
        for place, (key, command) in enumerate(self._commands):
            client = self._nodes.client_of(key)
            pipeline, places = by_client.setdefault(id(client), (client.pipeline(transaction=False), []))
            pipeline.execute_command(*command)
            places.append(place)
        replies: list[Any] = [None] * len(self._commands)
        for pipeline, places in by_client.values():
            for place, reply in zip(places, pipeline.execute(raise_on_error=False), strict=True):
                replies[place] = reply
        return replies


def stream(nodes: KvNodes, key: str, commands: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """Execute commands of one key; give each reply as it comes, errors among them. The node puts the next one together
    while one is read and used. Sent again, once, from where the key has moved. Raises `RedisError`, `OSError`."""
    num_given = 0
    for reply in _streamed(nodes.client_of(key), commands):
        if isinstance(reply, MovedError):
            break
        num_given += 1
        yield reply
    else:
        return
    nodes.learn()
    yield from _streamed(nodes.client_of(key), commands[num_given:])


def _streamed(client: Redis, commands: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """As `stream`; one that is closed before its end hangs up."""
    pool = client.connection_pool
    connection = pool.get_connection()
    num_unread = 0
    try:
        for number in range(len(commands)):
            for command in commands[number + num_unread : number + _UNDER_WAY]:
                connection.send_command(*command)  # type: ignore[no-untyped-call]
                num_unread += 1
            try:
                reply = connection.read_response()
            except ResponseError as error:
                reply = error
            num_unread -= 1
            yield reply
    finally:
        if num_unread:
            connection.disconnect()  # type: ignore[no-untyped-call]
        pool.release(connection)
