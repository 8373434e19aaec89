"""A thread's connections to Redis, one for each node of a cluster, and batches of commands over them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from redis import Redis, RedisCluster
from redis.exceptions import ClusterError, MovedError, RedisClusterException, RedisError, ResponseError

from shared.redis.client import blocking_cluster, blocking_redis
from shared.settings.redis import RedisAddress

_UNDER_WAY: Final = 2  # commands of a stream that are in flight


class KvNodes:
    """Connects at the first batch. Each read and write of a socket takes at most `timeout_ms`."""

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._cluster: RedisCluster | None = None
        # In a cluster this is the node in the URL, which is not queried; creating it rejects an invalid URL.
        self._client = blocking_redis(settings, timeout_ms=timeout_ms)

    def client_of(self, key: str) -> Redis:
        """Return the client for a key's node.

        Raises:
            RedisError: the cluster's slots cannot be read.
        """
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
        """Reload the cluster's slots from the first node that answers, or reconnect to a single server.

        A node that does not answer costs its timeout. A single server's address may lead to another server now.
        """
        if self._cluster is None:
            self._client.close()
            return
        try:
            self._cluster.nodes_manager.initialize()
        except (RedisError, RedisClusterException, OSError):
            self.close()  # the next batch asks the first node again

    def close(self) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


class Batch:
    """Commands with one key each, sent in one write to each node, in order."""

    def __init__(self, nodes: KvNodes) -> None:
        self._nodes = nodes
        self._commands: list[tuple[str, tuple[Any, ...]]] = []

    def __len__(self) -> int:
        return len(self._commands)

    def add(self, key: str, *command: Any) -> None:
        self._commands.append((key, command))

    def execute(self) -> list[Any]:
        """Execute the commands and return the replies in order, including errors.

        After a MOVED reply the batch is sent once more, which must be harmless.

        Raises:
            RedisError, OSError: a node did not answer.
        """
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
    """Execute commands of one key; yield each reply as it arrives, including errors.

    The node prepares the next reply while one is read and used. After a MOVED reply the remaining commands are sent to
    the new node, once.

    Raises:
        RedisError, OSError: a node did not answer.
    """
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
    """Execute commands as `stream`. If the generator is closed early, the connection is closed."""
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
