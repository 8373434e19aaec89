"""A master, its replica and a sentinel of the system's redis-server."""

import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from ops.stack.embedded import EmbeddedRedis
from ops.stack.processes import Child, free_port

MASTER_NAME: Final = "shop"
_DOWN_AFTER_MS: Final = 500
_PATIENCE_S: Final = 30.0


class WatchedRedis:
    """`url` names a sentinel that is down before the one that runs."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("redis-server")
        assert binary is not None, "redis-server is missing. Type: apt-get install redis-server"
        self._password = secrets.token_urlsafe(16)
        common = [f"masterauth {self._password}", "maxmemory-policy noeviction", "repl-diskless-sync-delay 0"]
        common.append(f"dir {folder}")
        first = EmbeddedRedis(binary=binary, password=self._password, settings=common)
        follows = [*common, f"replicaof 127.0.0.1 {first.port}"]
        self.servers = [first, EmbeddedRedis(binary=binary, password=self._password, settings=follows)]
        self._until(lambda: self.tell(self.servers[1], "INFO", "replication")["master_link_status"] == "up")
        self._port, self._dead_port = free_port(), free_port()
        file = folder / "sentinel.conf"
        lines = (
            "bind 127.0.0.1",
            f"port {self._port}",
            f"dir {folder}",
            f"sentinel monitor {MASTER_NAME} 127.0.0.1 {first.port} 1",
            f"sentinel auth-pass {MASTER_NAME} {self._password}",
            f"sentinel down-after-milliseconds {MASTER_NAME} {_DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER_NAME} 3000",
        )
        file.write_text("\n".join(lines))
        self._sentinel = Child.start([binary, str(file), "--sentinel"])
        self._until(lambda: self._told_master()["num-slaves"] == 1)

    @property
    def url(self) -> str:
        places = f"127.0.0.1:{self._dead_port},127.0.0.1:{self._port}"
        return f"redis+sentinel://:{self._password}@{places}/{MASTER_NAME}/0"

    @property
    def master(self) -> EmbeddedRedis:
        """The server that the sentinel names."""
        port = self._told_master()["port"]
        return next(server for server in self.servers if server.port == port)

    def tell(self, server: EmbeddedRedis, *command: Any) -> Any:
        with Redis.from_url(server.url, decode_responses=True) as admin:
            return admin.execute_command(*command)

    def fail_over(self) -> None:
        """The master steps down: it lives on as a replica."""
        before = self.master
        self._until(self._begins_to_fail_over)
        self._until(lambda: self.master is not before and "slave" in self.tell(before, "ROLE"))

    def _begins_to_fail_over(self) -> bool:
        """Start a failover; the sentinel refuses it until it has enough information about the replica."""
        with self._sentinel_client() as sentinel:
            return bool(sentinel.execute_command("SENTINEL", "FAILOVER", MASTER_NAME))

    def kill_the_master(self) -> None:
        """Until the other serves in its place."""
        before = self.master
        before.kill()
        self._until(lambda: self.master is not before and "master" in self.tell(self.master, "ROLE"))

    def stop(self) -> None:
        self._sentinel.stop()
        for server in self.servers:
            server.stop()

    def _sentinel_client(self) -> Redis:
        return Redis(port=self._port, decode_responses=True)

    def _told_master(self) -> Any:
        with self._sentinel_client() as sentinel:
            return sentinel.sentinel_master(MASTER_NAME)

    @staticmethod
    def _until(condition: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if condition():
                    return
            except (RedisError, OSError):
                pass
            assert time.monotonic() < until, "the sentinel does not get there"
            time.sleep(0.05)
