"""One WebSocket to a gateway, from its `session.created` to its end."""

import asyncio
from contextlib import ExitStack, suppress
from typing import Final, Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI, parse_uri

from shared.client.failures import ConnectFailed
from shared.errors import SettingsError
from shared.wire.codec import Codec
from shared.wire.messages import ErrorEvent, ServerMessage, SessionCreated, SessionStart
from shared.wire.outcome import Message

_OPEN_S: Final = 10.0
# Beside two heartbeats: the gateway looks once a second whether one is due, and its machine may be busy.
_SLACK_S: Final = 5.0
_TERMINAL: Final = (1009, *range(4500, 4600))


class Socket:
    """An open one. `session` is what the gateway said of it; `lost_because` is known once `receive` has said None."""

    def __init__(self, connection: ClientConnection, codec: Codec[ServerMessage], session: SessionCreated) -> None:
        self._connection = connection
        self._codec = codec
        self.session = session
        self.lost_because = "not lost"

    @classmethod
    async def open(cls, url: str, codec: Codec[ServerMessage], hello: SessionStart) -> Self:
        """Open one; the connection of a try that fails is closed. Raises `ConnectFailed`."""
        with ExitStack() as failing:
            try:
                async with asyncio.timeout(_OPEN_S):
                    connection = await connect(
                        url,
                        subprotocols=[Subprotocol(codec.name)],
                        compression=None,
                        open_timeout=None,
                        ping_interval=None,
                        max_size=None,
                        proxy=None,
                    )
                    failing.callback(connection.transport.abort)
                    with suppress(ConnectionClosed):  # why it is closed is to be read
                        await connection.send(codec.encode(hello), text=codec.is_text)
                    first = await connection.recv()
            except TimeoutError as error:
                raise ConnectFailed(f"{url} did not answer within {_OPEN_S:g} s; is it up?") from error
            except InvalidStatus as error:  # something else, or a gateway at another path
                raise ConnectFailed(f"cannot connect to {url}: {error}; a gateway is at ws://HOST:PORT/ws") from error
            except (OSError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
                raise ConnectFailed(f"cannot connect to {url}: {error}; is it up? (replyline up)") from error
            opened = cls(connection, codec, _session_of(url, codec, first))
            failing.pop_all()
            return opened

    async def send(self, message: Message) -> None:
        """Send a message; one that is lost with the socket is said by `receive`."""
        with suppress(ConnectionClosed):
            await self._connection.send(self._codec.encode(message), text=self._codec.is_text)

    async def receive(self) -> ServerMessage | None:
        """Return the next message; None where the socket is closed, or nothing was heard for two heartbeats and a
        little."""
        silence_s = 2 * self.session.heartbeat_s + _SLACK_S
        try:
            async with asyncio.timeout(silence_s):
                return self._codec.decode(await self._connection.recv())
        except TimeoutError:
            self.lost_because = f"nothing was heard for {silence_s:g} s"
        except msgspec.DecodeError:
            self.lost_because = f"it does not speak {self._codec.name}"
        except ConnectionClosed:
            closed = self._connection
            self.lost_because = f"{closed.close_code} {closed.close_reason or ''}".strip()
        self.hang_up()
        return None

    def hang_up(self) -> None:
        """Without waiting for what is still on its way: the cursor says what has arrived."""
        self._connection.transport.abort()

    async def close(self) -> None:
        await self._connection.close()

    @property
    def is_final(self) -> bool:
        """Return whether it was closed by a gateway that is not to be asked again."""
        return self._connection.close_code in _TERMINAL


def _session_of(url: str, codec: Codec[ServerMessage], first: bytes | str) -> SessionCreated:
    """Read the first message, `session.created`. Raises `ConnectFailed` for any other."""
    with suppress(msgspec.DecodeError):
        message = codec.decode(first)
        if isinstance(message, ErrorEvent):
            failed = ConnectFailed(f"{url} refused the session: {message.error.message}")
            failed.retry_after_s = (message.error.retry_after_ms or 0) / 1_000
            raise failed
        if isinstance(message, SessionCreated):
            return message
    raise ConnectFailed(f"{url} does not speak {codec.name}")


def address_of(url: str) -> WebSocketURI:
    """Return the parts of a WebSocket address. Raises `SettingsError` where it is none."""
    try:
        return parse_uri(url)
    except (InvalidURI, ValueError) as error:  # ValueError: a port that is no number, or too large
        wrong = error.msg if isinstance(error, InvalidURI) else error
        raise SettingsError(f"{url} is no gateway's address: {wrong}; write ws://host:port/ws") from None
