"""One WebSocket to a gateway, from its `session.created` to its end."""

import asyncio
import json
import math
from contextlib import ExitStack, suppress
from socket import gaierror
from typing import Final, Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI, parse_uri

from shared.client.telling import ConnectFailed
from shared.errors import SettingsError
from shared.wire.codec import Codec
from shared.wire.lenient import read_json
from shared.wire.messages import ErrorEvent, ServerMessage, SessionCreated, SessionStart
from shared.wire.outcome import Message

_OPEN_S: Final = 10.0
# On top of two heartbeats: the gateway checks once a second whether one is due, and its machine may be busy.
_SLACK_S: Final = 5.0
_TERMINAL: Final = (1009, *range(4500, 4600))


class Socket:
    """An open one. `session` is what the gateway said of it; `lost_because` is known once `receive` has said None."""

    def __init__(self, connection: ClientConnection, codec: Codec[ServerMessage], session: SessionCreated) -> None:
        self._connection = connection
        self._codec = codec
        self.session = session
        self.lost_because = "not lost"
        self._give_up_at = math.inf  # by the event loop's clock
        self._silence_s = math.inf  # what that allows
        self._reading: asyncio.Timeout | None = None

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
                        await connection.send(_encode(codec, hello), text=codec.is_text)
                    first = await connection.recv()
            except TimeoutError as error:
                raise ConnectFailed(f"{url} did not answer within {_OPEN_S:g} s; is it up?") from error
            except InvalidStatus as error:  # something else, or a gateway at another path
                raise ConnectFailed(f"cannot connect to {url}: {error}; a gateway is at ws://HOST:PORT/ws") from error
            except (OSError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
                raise no_connection(url, error) from error
            opened = cls(connection, codec, _session_of(url, codec, first))
            failing.pop_all()
            return opened

    async def send(self, message: Message) -> None:
        """Send a message; one that is lost with the socket is said by `receive`."""
        with suppress(ConnectionClosed):
            await self._connection.send(_encode(self._codec, message), text=self._codec.is_text)

    def expect_frame(self, within_s: float) -> None:
        """Have `receive` give the socket up unless a frame arrives within `within_s` seconds."""
        give_up_at = asyncio.get_running_loop().time() + within_s
        if give_up_at < self._give_up_at:
            self._give_up_at, self._silence_s = give_up_at, within_s
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(self._give_up_at)

    async def receive(self) -> ServerMessage | None:
        """Return the next message. Return None if the socket is closed, or if nothing arrives for two heartbeats and a
        little, or in the time that `expect_frame` gave."""
        self.expect_frame(2 * self.session.heartbeat_s + _SLACK_S)
        try:
            async with asyncio.timeout_at(self._give_up_at) as self._reading:
                received = await self._connection.recv()
            self._give_up_at = math.inf
            return self._codec.decode(received)
        except TimeoutError:
            self.lost_because = f"nothing was heard for {self._silence_s:g} s"
        except msgspec.DecodeError:
            self.lost_because = f"it does not speak {self._codec.name}"
        except ConnectionClosed:
            closed = self._connection
            self.lost_because = f"{closed.close_code} {closed.close_reason or ''}".strip()
        finally:
            self._reading = None
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


def _encode(codec: Codec[ServerMessage], message: Message) -> bytes:
    """Encode a message. U+FFFD replaces halves of characters, which UTF-8 cannot carry."""
    try:
        return codec.encode(message)
    except UnicodeEncodeError:
        return codec.encode(msgspec.convert(read_json(json.dumps(msgspec.to_builtins(message))), type(message)))


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


def no_connection(url: str, error: Exception) -> ConnectFailed:
    """Return the error of an address to which no connection was made, with what to do."""
    remedy = "check the host's name" if isinstance(error, gaierror) else "is it up? (replyline up)"
    return ConnectFailed(f"cannot connect to {url}: {error or 'no answer'}; {remedy}")


def address_of(url: str) -> WebSocketURI:
    """Return the parts of a WebSocket address. Raises `SettingsError` if it is invalid."""
    try:
        return parse_uri(url)
    except (InvalidURI, ValueError) as error:  # ValueError: a port that is no number, or too large
        wrong = error.msg if isinstance(error, InvalidURI) else error
        raise SettingsError(f"{url} is no gateway's address: {wrong}; write ws://host:port/ws") from None
