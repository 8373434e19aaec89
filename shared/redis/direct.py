"""redis-py's client and pools for one event loop, without what a bounded call does not need: the metrics of each
connection, command and error, the lock of the pool, and the loop of retries. They take most of a call's CPU."""

from typing import Any

from hiredis import pack_command
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.sentinel import SentinelConnectionPool


class DirectRedis(Redis):
    """A client that sends a command once. Its pool is a `DirectPool` or a `DirectSentinelPool`."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if self.single_connection_client:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        pool = self.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            name, *values = args
            await connection.send_packed_command(pack_command((*name.split(), *values)))  # "SCRIPT LOAD" is two words
            return await self.parse_response(connection, name, **options)
        finally:
            await pool.release(connection)


class SentinelMaster(DirectRedis):
    """A master's client that also closes the connections to the Sentinels."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined]
            await sentinel.aclose()


class _Direct(ConnectionPool):
    """Needs no lock: nothing is awaited while a connection changes hands."""

    async def get_connection(self, *_: Any, **__: Any) -> AbstractConnection:
        connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call]
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: AbstractConnection) -> None:
        try:
            if connection.should_reconnect():  # type: ignore[no-untyped-call]
                await connection.disconnect()
        finally:
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)


class DirectPool(_Direct):
    """The connections to one server."""


class DirectSentinelPool(_Direct, SentinelConnectionPool):
    """The connections to the master that the Sentinels name."""
