"""A Redis Cluster of the system's redis-server: three masters, and replicas of the first on request."""

import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from ops.stack.embedded import EmbeddedRedis
from ops.stack.processes import free_port

MASTERS: Final = 3
_SLOTS: Final = 16_384
_NODE_TIMEOUT_MS: Final = 1_000
_PATIENCE_S: Final = 30.0


class RedisCluster:
    """`nodes`: the masters in the order of their slots, then the replicas. `policy` is their `maxmemory-policy`."""

    def __init__(self, folder: Path, *, replicas: int = 0, policy: str = "noeviction") -> None:
        password = secrets.token_urlsafe(16)
        self.buses = [free_port() for _ in range(MASTERS + replicas)]
        self.nodes: list[EmbeddedRedis] = []
        for number, bus in enumerate(self.buses):
            home = folder / str(number)
            home.mkdir()
            settings = [
                *("cluster-enabled yes", f"cluster-port {bus}", f"cluster-node-timeout {_NODE_TIMEOUT_MS}"),
                *(f"dir {home}", f"masterauth {password}", f"maxmemory-policy {policy}", "repl-diskless-sync-delay 0"),
            ]
            node = EmbeddedRedis(binary=shutil.which("redis-server"), settings=settings, password=password)
            self.nodes.append(node)
        self._meet()

    @property
    def url(self) -> str:
        """Of its first node."""
        return self.nodes[0].url

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def admin(self, number: int) -> Redis:
        return Redis.from_url(self.nodes[number].url, decode_responses=True)

    def tell(self, number: int, *command: Any) -> Any:
        with self.admin(number) as admin:
            return admin.execute_command(*command)

    def masters(self) -> Iterator[int]:
        """Those that serve slots now."""
        for number, node in enumerate(self.nodes):
            if node.running and "master" in self.tell(number, "ROLE"):
                yield number

    def keys(self, pattern: str) -> set[str]:
        """Of all masters."""
        return {key for number in self.masters() for key in self.tell(number, "KEYS", pattern)}

    def owner_of(self, key: str) -> int:
        """The master that was given the key's slot at first."""
        return key_slot(key.encode()) * MASTERS // _SLOTS

    # --- what happens to it

    def _meet(self) -> None:
        for number in range(MASTERS):
            first, last = (-(-_SLOTS * each // MASTERS) for each in (number, number + 1))
            self.tell(number, "CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        for number in range(1, len(self.nodes)):
            self.tell(0, "CLUSTER", "MEET", "127.0.0.1", self.nodes[number].port, self.buses[number])
        first_id = self.tell(0, "CLUSTER", "MYID")
        for number in range(MASTERS, len(self.nodes)):
            _until(lambda number=number: self._follows(number, first_id))  # type: ignore[misc]
        _until(lambda: all(self._is_whole(number) for number in range(len(self.nodes))))

    def _follows(self, number: int, master_id: str) -> bool:
        try:
            self.tell(number, "CLUSTER", "REPLICATE", master_id)
        except RedisError:  # it does not know its master yet
            return False
        return True

    def _is_whole(self, number: int) -> bool:
        state = self.tell(number, "CLUSTER INFO")
        linked = number < MASTERS or self.tell(number, "INFO", "replication")["master_link_status"] == "up"
        return state["cluster_state"] == "ok" and int(state["cluster_known_nodes"]) == len(self.nodes) and linked

    def begin_to_move(self, slot: int, source: int, target: int) -> None:
        self.tell(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.tell(source, "CLUSTER", "MYID"))
        self.tell(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.tell(target, "CLUSTER", "MYID"))

    def move_keys(self, slot: int, source: int, target: int) -> None:
        password = self.nodes[target].url.split(":")[2].partition("@")[0]
        while keys := self.tell(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            place = ("127.0.0.1", self.nodes[target].port)
            self.tell(source, "MIGRATE", *place, "", 0, 5_000, "AUTH", password, "KEYS", *keys)

    def end_the_move(self, slot: int, source: int, target: int) -> None:
        """Its keys, then the slot, as redis-cli does it."""
        self.move_keys(slot, source, target)
        target_id = self.tell(target, "CLUSTER", "MYID")
        for number in (target, source, *self.masters()):
            self.tell(number, "CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def kill_and_wait(self, number: int) -> None:
        """Until a replica serves in its place."""
        self.nodes[number].kill()
        _until(lambda: len(list(self.masters())) == MASTERS)
        _until(lambda: all(self.tell(each, "CLUSTER INFO")["cluster_state"] == "ok" for each in self.masters()))


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "the cluster does not come about"
        time.sleep(0.05)
