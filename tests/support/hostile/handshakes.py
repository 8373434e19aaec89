"""Openings of a connection that are no WebSocket handshake, or not one to accept. Pure."""

from collections.abc import Callable
from random import Random
from typing import Final

from tests.support.rfc6455 import handshake

_LONG = "x" * 8_000
_CHANGES: Final[dict[str, tuple[str | None, ...]]] = {
    "Host": (None, "", "\xff"),
    "Upgrade": (None, "h2c", "websocket, websocket", ",", '"'),
    "Connection": (None, "close", "upgrade, \xff", ",,,", '"', "keep-alive"),
    "Sec_WebSocket_Key": (None, "", "x", "\xff" * 24, "AAAA", "A" * 8_000, "====", "0" * 24),
    "Sec_WebSocket_Version": (None, "", "8", "99999999999999999999", "13, 8", "\xb2"),
    "Sec_WebSocket_Protocol": ("", ",", _LONG, '"', "chat.v9.xml", "\xff", "chat.v1.json, ,"),
    "Sec_WebSocket_Extensions": ("permessage-deflate; =", "\xff;;;", _LONG, '"', "a;b=c"),
    "Origin": ("null", "\xff", "http://[", _LONG),
    "Transfer_Encoding": ("chunked",),
    "Content_Length": ("5", "-1", "\xb2", "9" * 5_000),
    "Expect": ("100-continue",),
    "path": (
        *("/", "/ws?" + _LONG, "//", "*", "/../../etc/passwd", "/%00", "/\xff", "ws://[", "/metrics?a", "/health/"),
        *("/ready#", "/widget.js/../x", "http://a/ws", "/ws%2f", "?"),
    ),
}


def bad_handshake(random: Random) -> bytes:
    name = random.choice(list(_CHANGES))
    request = handshake("chat.v1.json", **{name: random.choice(_CHANGES[name])})  # type: ignore[arg-type]
    return request if random.random() < 0.7 else request.replace(b"HTTP/1.1", b"HTTP/1.0")


_GET: Final = b"GET /ws HTTP/1.1\r\n"
_GOOD: Final = handshake("chat.v1.json")
_NO_REQUESTS: Final[tuple[Callable[[Random], bytes], ...]] = (
    lambda random: _GOOD[: random.randrange(len(_GOOD))],
    lambda random: random.randbytes(300),
    lambda _: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    lambda _: _GOOD.replace(b"\r\n", b"\n"),
    lambda _: _GOOD.replace(b": ", b":\x00"),
    lambda _: _GOOD.replace(b"GET", b"get"),
    lambda random: random.choice((b"\r\n", b"\x00", b"x")) * 20_000,
    lambda _: _GET + b"a: b\r\n" * 200 + b"\r\n",
    lambda _: _GET + b"x" * 20_000,
    lambda random: _GET + random.choice((b" : x", b" folded", b":", b"a", b"\xff: \xff")) + b"\r\n\r\n",
    lambda random: random.choice((b"GET", b"GET /ws", b"GET /ws HTTP/9.9", b"GET  HTTP/1.1", b"/ws")) + b"\r\n\r\n",
    lambda _: b"POST /ws HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    lambda _: b"HEAD / HTTP/1.1\r\n\r\n",
)


def no_request(random: Random) -> bytes:
    """Bytes that are no request for a WebSocket, or only half of one."""
    return random.choice(_NO_REQUESTS)(random)
