"""Read public keys from a file or a URL periodically, outside the event loop, and keep the last good ones.

Only one read is in progress at a time, and no client waits for it longer than `Jwks.timeout_s`. Keys are read at the
start, every `Jwks.refresh_s` (which also drops keys that their issuer has withdrawn), and when a token names an unknown
key, at most once per `Jwks.cooldown_s`: a client that invents key ids causes one request per cooldown, and only that
client waits for it.
"""

import asyncio
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway.access.identity import TokenGate, TokenRules, lacks_key
from gateway.access.token_keys import KeySet, TokenKey, parse_jwks, secret_key
from shared.errors import SettingsError
from shared.process.clock import correction_ms, monotonic_s, now_unix_ms
from shared.settings import PREFIX
from shared.settings.auth import AuthSettings
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger

_MAX_BYTES: Final = 262_144
_PIECE_BYTES: Final = 16_384
_RETRY_S: Final = 5.0

log = get_logger()


class KeysUnreadable(Exception):  # noqa: N818 - an event, not a kind of error
    """The keys could not be read. The message is the cause in a few words."""


@dataclass(slots=True, kw_only=True)
class Jwks:
    """Reads the public keys that verify tokens from a JSON Web Key Set (JWKS), and stores them in `gate.keys`.

    Attributes:
        source: a file or a URL
        gate: verifies tokens with its `keys`
        own_keys: keys that are always added to those of the JWKS: the key of the setting `auth.secret_file`
        refresh_s: seconds between two reads
        timeout_s: maximum seconds that a read of a URL may take
        cooldown_s: minimum seconds between two reads because of tokens with an unknown key id
    """

    source: str
    gate: TokenGate
    own_keys: tuple[TokenKey, ...] = ()
    refresh_s: float = 300.0
    timeout_s: float = 3.0
    cooldown_s: float = 10.0
    _issuer: Availability = field(default_factory=lambda: Availability("JWKS"))
    _read_unix_ms: float | None = None
    _tried_s: float | None = None
    """When the last read was attempted, by the monotonic clock."""
    _reading: asyncio.Task[None] | None = None
    _thread: asyncio.Task[tuple[TokenKey, ...]] | None = None

    def missing(self) -> str | None:
        """Return what is missing, for `/ready`; None once keys have been read."""
        return None if self._read_unix_ms is not None else f"no JWKS at {self.source}"

    async def start(self) -> None:
        """Read the keys from a file. Raises `SettingsError` if it contains none. A URL is read later, by `watch`."""
        if _is_url(self.source):
            return
        try:
            self._keep(await asyncio.to_thread(read_keys, self.source, self.timeout_s))
        except KeysUnreadable as error:
            raise SettingsError(f"{PREFIX}AUTH__JWKS={self.source}: {error}") from None

    async def watch(self) -> None:
        """Read the keys every `refresh_s`, and sooner after a failure."""
        if self._read_unix_ms is None:
            await self._read()
        while True:
            await asyncio.sleep(self.refresh_s if self.gate.keys.complete else min(_RETRY_S, self.refresh_s))
            await self._read()

    async def prepare(self, token: str) -> None:
        """Read the keys again before a token is checked, if it names an unknown key and the cooldown has passed."""
        if not lacks_key(token, self.gate.keys, self.gate.rules):
            return
        if self._reading is None and self._cooling():
            return
        await self._read()

    def _cooling(self) -> bool:
        return self._tried_s is not None and monotonic_s() - self._tried_s < self.cooldown_s

    async def _read(self) -> None:
        """Read the keys once for all waiting callers. Cancelling one caller does not stop the read."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_once(), name="read the JWKS")
        await asyncio.shield(self._reading)

    async def _read_once(self) -> None:
        self._tried_s = monotonic_s()
        try:
            keys = await self._read_in_time(self.timeout_s)
        except KeysUnreadable as error:
            self._issuer.mark_down(str(error), source=self.source, keys=len(self.gate.keys.keys))
            self.gate.keys = replace(self.gate.keys, complete=False)
        else:
            self._keep(keys)
        finally:
            self._reading = None

    async def _read_in_time(self, timeout_s: float) -> tuple[TokenKey, ...]:
        """Read the keys within the time. Raises `KeysUnreadable`.

        No socket timeout covers a slow name server or headers that arrive byte by byte. In that case the thread
        continues, and the next read waits for it instead of starting another.
        """
        thread = self._thread
        if thread is None or thread.done():
            thread = asyncio.create_task(asyncio.to_thread(read_keys, self.source, timeout_s))
            # retrieves the exception of a read that ends after the timeout
            thread.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            self._thread = thread
        await asyncio.wait({thread}, timeout=timeout_s)
        if not thread.done():
            raise KeysUnreadable("no complete response in time")
        return thread.result()

    def _keep(self, keys: tuple[TokenKey, ...]) -> None:
        known = self.gate.keys
        self.gate.keys = KeySet((*self.own_keys, *keys))
        self._read_unix_ms = now_unix_ms()
        self._issuer.mark_up()
        if len(known.keys) != len(self.gate.keys.keys):
            log.info("jwks_read", source=self.source, keys=len(keys))


def read_keys(source: str, timeout_s: float) -> tuple[TokenKey, ...]:
    """Read and parse the keys. Blocks; `timeout_s` bounds each wait for the socket, but not their sum. Raises
    `KeysUnreadable`."""
    try:
        data = _fetch(source, timeout_s) if _is_url(source) else _read_file(Path(source))
        return parse_jwks(data)
    except urllib.error.HTTPError as error:
        with error:
            raise KeysUnreadable(f"HTTP {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise KeysUnreadable(cause) from None


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(file.read(_MAX_BYTES + 1))


def _fetch(url: str, timeout_s: float) -> bytes:
    """Return the complete body within the time, also from a server that sends it byte by byte."""
    until = monotonic_s() + timeout_s
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "replyline"})  # noqa: S310 - http(s) by the settings
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout_s) as response:
        data = b""
        while piece := response.read1(_PIECE_BYTES):
            data = _bounded(data + piece)
            if monotonic_s() > until:
                raise TimeoutError("no complete response in time")
    return data


def _bounded(data: bytes) -> bytes:
    if len(data) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: keys are read only from the address in the settings."""

    def redirect_request(self, *_: object) -> None:
        return None


def _is_url(source: str) -> bool:
    return "://" in source


def token_gate(auth: AuthSettings) -> TokenGate | None:
    """Return the gate that checks tokens; None if clients need no token."""
    if auth.decided_mode != "token":
        return None
    rules = TokenRules(issuer=auth.issuer, audience=auth.audience)
    secret = auth.secret_bytes()
    # An unknown key may be in the JWKS until that has been read.
    keys = KeySet((secret_key(secret),) if secret else (), complete=auth.jwks is None)
    return TokenGate(rules, keys, correction_ms)


def open_jwks(auth: AuthSettings, gate: TokenGate | None) -> Jwks | None:
    """Return the reader of public keys; None if no JWKS is configured."""
    if gate is None or auth.jwks is None:
        return None
    return Jwks(source=auth.jwks, gate=gate, own_keys=gate.keys.keys)
