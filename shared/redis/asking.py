"""A connection to a cluster's node that sends ASKING together with the command that it is for.

redis-py's asyncio cluster client takes a connection of its pool for each of the two, the longest unused one: where a
node has several, nothing reaches what has left a slot that is being moved (redis 8.1, `_execute_command`).
"""

from contextvars import ContextVar
from typing import Any, Final

from redis.asyncio.connection import Connection, SSLConnection

_is_asking: Final[ContextVar[bool]] = ContextVar("is_asking", default=False)


class _Asking(list[bytes]):
    """ASKING, which waits for its command: the same task packs that next, maybe for another connection."""


class _Asked(list[bytes]):
    """A command behind its ASKING."""


class AskingConnection(Connection):
    """A plain one."""

    _sent: object = None

    def pack_command(self, *command: Any) -> list[bytes]:
        if command == ("ASKING",):
            _is_asking.set(True)
            return _Asking()
        packed = super().pack_command(*command)
        if not _is_asking.get():
            return packed
        _is_asking.set(False)
        return _Asked([*super().pack_command("ASKING"), *packed])

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not isinstance(command, _Asking):
            await super().send_packed_command(command, check_health)
        self._sent = command  # what a new connection has sent before its first command is behind it

    async def read_response(self, *args: Any, **options: Any) -> Any:
        sent, self._sent = self._sent, None
        if isinstance(sent, _Asking):
            return b"OK"
        if isinstance(sent, _Asked):
            await super().read_response()
        return await super().read_response(*args, **options)


class AskingTlsConnection(AskingConnection, SSLConnection):
    """One with TLS."""
