"""A thread's connections to Redis: one, or one to each node of a cluster; and what is sent over them together."""

from typing import Any

from redis import Redis
from redis.exceptions import MovedError, RedisError

from shared.redis.client import blocking_redis, seed_of
from shared.redis.slots import Node, SlotMap
from shared.settings.redis import RedisAddress


class KvNodes:
    """Connects with the first batch. Each read and each write of a socket takes at most `timeout_ms`."""

    def __init__(self, settings: RedisAddress, *, timeout_ms: float) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._seed = seed_of(settings)
        self._slots = SlotMap(self._seed)
        self._clients: dict[Node | None, Redis] = {}
        self._client(None)  # raises `SettingsError` where the URL is none

    def client_of(self, key: str) -> Redis:
        return self._client(self._slots.of(key) if self._settings.cluster else None)

    def _client(self, node: Node | None) -> Redis:
        """None: as the settings name it."""
        client = self._clients.get(node)
        if client is None:
            client = self._clients[node] = blocking_redis(self._settings, timeout_ms=self._timeout_ms, node=node)
        return client

    def learn(self) -> None:
        """Ask the cluster's nodes, until one answers, who serves what; those that are asked in vain cost their time."""
        if not self._settings.cluster:
            return
        for node in (*self._slots.nodes(), self._seed):
            try:
                told = self._client(node).execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
                self._slots.learn(told, node)
            except (RedisError, OSError):
                continue
            return

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


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
        """The replies in the order of the commands, errors among them. Sent again, once, where a slot has moved: each
        batch may be. Raises `RedisError`, `OSError`."""
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
