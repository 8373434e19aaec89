"""One WebSocket to a gateway, from `session.created` to its close."""

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
from shared.hosts import SOCKETS, check_url, shown_url
from shared.wire.codec import Codec
from shared.wire.lenient import read_json
from shared.wire.messages import ErrorEvent, ServerMessage, SessionCreated, SessionStart
from shared.wire.outcome import Message

_OPEN_S: Final = 10.0
# Added to two heartbeats: the gateway checks once a second whether a heartbeat is due, and its machine may be busy.
_SLACK_S: Final = 5.0
_TERMINAL: Final = (1009, *range(4500, 4600))


class Socket:
    """An open WebSocket.

    Attributes:
        session: the gateway's `session.created`.
        lost_because: why the socket closed; known once `receive` has returned None.
    """

    def __init__(self, connection: ClientConnection, codec: Codec[ServerMessage], session: SessionCreated) -> None:
        self._connection = connection
        self._codec = codec
        self.session = session
        self.lost_because = "not lost"
        self._give_up_at = math.inf  # time on the event loop's clock
        self._silence_s = math.inf  # the silence that this time allows
        self._reading: asyncio.Timeout | None = None

    @classmethod
    async def open(cls, url: str, codec: Codec[ServerMessage], hello: SessionStart) -> Self:
        """Open a WebSocket and start a session. A failed attempt leaves no connection open.

        Raises:
            ConnectFailed: the gateway does not answer or refuses the session.
        """
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
                    with suppress(ConnectionClosed):  # `recv` reports why it was closed
                        await connection.send(_encode(codec, hello), text=codec.is_text)
                    first = await connection.recv()
            except TimeoutError as error:
                raise ConnectFailed(f"{url} did not answer within {_OPEN_S:g} s; is it up?") from error
            except InvalidStatus as error:  # another server, or a gateway at another path
                raise ConnectFailed(f"cannot connect to {url}: {error}; a gateway is at ws://HOST:PORT/ws") from error
            except (OSError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
                raise no_connection(url, error) from error
            opened = cls(connection, codec, _session_of(url, codec, first))
            failing.pop_all()
            return opened

    async def send(self, message: Message) -> None:
        """Send a message. If the socket is closed, the next `receive` reports it."""
        with suppress(ConnectionClosed):
            await self._connection.send(_encode(self._codec, message), text=self._codec.is_text)

    def expect_frame(self, within_s: float) -> None:
        """Make `receive` close the socket unless a frame arrives within `within_s` seconds."""
        give_up_at = asyncio.get_running_loop().time() + within_s
        if give_up_at < self._give_up_at:
            self._give_up_at, self._silence_s = give_up_at, within_s
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(self._give_up_at)

    async def receive(self) -> ServerMessage | None:
        """Return the next message.

        Returns:
            None if the socket is closed, or if nothing arrives within two heartbeats plus a margin, or within the time
            that
            `expect_frame` set.
        """
        self.expect_frame(2 * self.session.heartbeat_s + _SLACK_S)
        try:
            async with asyncio.timeout_at(self._give_up_at) as self._reading:
                received = await self._connection.recv()
            self._give_up_at = math.inf
            return self._codec.decode(received)
        except TimeoutError:
            self.lost_because = f"nothing was received for {self._silence_s:g} s"
        except msgspec.DecodeError:
            self.lost_because = f"it does not use {self._codec.name}"
        except ConnectionClosed:
            closed = self._connection
            self.lost_because = f"{closed.close_code} {closed.close_reason or ''}".strip()
        finally:
            self._reading = None
        self.hang_up()
        return None

    def hang_up(self) -> None:
        """Close without waiting for messages under way; the cursor records what has arrived."""
        self._connection.transport.abort()

    async def close(self) -> None:
        await self._connection.close()

    @property
    def is_final(self) -> bool:
        """Return whether a gateway closed it with a code after which a reconnect is useless."""
        return self._connection.close_code in _TERMINAL


def _encode(codec: Codec[ServerMessage], message: Message) -> bytes:
    """Encode a message. U+FFFD replaces unpaired surrogates, which UTF-8 cannot encode."""
    try:
        return codec.encode(message)
    except UnicodeEncodeError:
        return codec.encode(msgspec.convert(read_json(json.dumps(msgspec.to_builtins(message))), type(message)))


def _session_of(url: str, codec: Codec[ServerMessage], first: bytes | str) -> SessionCreated:
    """Read the first message, `session.created`.

    Raises:
        ConnectFailed: it is another message.
    """
    with suppress(msgspec.DecodeError):
        message = codec.decode(first)
        if isinstance(message, ErrorEvent):
            failed = ConnectFailed(f"{url} refused the session: {message.error.message}")
            failed.refused = message.error.code
            failed.retry_after_s = (message.error.retry_after_ms or 0) / 1_000
            raise failed
        if isinstance(message, SessionCreated):
            return message
    raise ConnectFailed(f"{url} does not use {codec.name}")


def no_connection(url: str, error: Exception) -> ConnectFailed:
    """Return the error for an address that cannot be connected, with what to do."""
    remedy = "check the host's name" if isinstance(error, gaierror) else "is it up? (replyline up)"
    return ConnectFailed(f"cannot connect to {url}: {error or 'no answer'}; {remedy}")


def address_of(url: str) -> WebSocketURI:
    """Return the parts of a WebSocket address.

    Raises:
        SettingsError: it is invalid.
    """
    form = "ws://host:port/ws"
    try:
        check_url(url, SOCKETS, form=form, login=None)
        return parse_uri(url)
    except InvalidURI as error:
        wrong = f"{error.msg}; write {form}"
    except ValueError as error:
        wrong = str(error)
    raise SettingsError(f"{shown_url(url)} is not a gateway's address: {wrong}")
