"""A connection to the HTTP port is bounded from its first byte on: headers, upgrades, pings, fragments."""

import asyncio
import base64
from ipaddress import ip_network
from typing import Any, Final

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.http.protocol import BoundedHttp, BoundedSocket
from shared.sockets.bounded import BoundedTransport, Bounds
from shared.sockets.open_sockets import OpenSockets
from tests.unit.shared.sockets.test_heads import NO_HOST

CLIENT: Final = "192.0.2.7"
UPGRADE: Final = (
    b"GET /chat HTTP/1.1\r\nHost: x\r\n%sUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)


class Wire:
    """A transport whose peer reads nothing."""

    def __init__(self, peer: str = CLIENT) -> None:
        self.peer, self.written, self.reads, self.ended = peer, bytearray(), True, ""
        self.protocol: Any = None

    def get_extra_info(self, name: str) -> Any:
        return (self.peer, 4711) if name in {"peername", "sockname"} else None

    def write(self, data: bytes) -> None:
        before = len(self.written)
        self.written += data
        if before <= 65_536 < len(self.written):
            self.protocol.pause_writing()

    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return bool(self.ended)

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def connect(
    sockets: OpenSockets, peer: str = CLIENT, *, head_s: float = 60, unread_s: float = 60, served: Any = app
) -> Wire:
    config = uvicorn.Config(served, ws=BoundedSocket, lifespan="off", log_config=None)
    config.load()
    bounds = Bounds(sockets=sockets, head_s=head_s, unread_s=unread_s)
    wire = Wire(peer)
    inner = BoundedHttp(config=config, server_state=ServerState(), app_state={}, trusted=sockets.proxies)
    wire.protocol = BoundedTransport(bounds, inner)
    wire.protocol.connection_made(wire)
    return wire


async def send(wire: Wire, data: bytes, limit: int = 4_000_000) -> int:
    """Send as much as the gateway accepts, repeatedly; return how much that was."""
    sent = 0
    while data and sent < limit and wire.reads and not wire.ended:
        wire.protocol.data_received(data)
        sent += len(data)
        for _ in range(len(data) // 8_192 + 6):
            await asyncio.sleep(0)
    return sent


def status(wire: Wire) -> int:
    return int(bytes(wire.written).rsplit(b"HTTP/1.1 ", 1)[-1][:3])


HEAD: Final = b"GET / HTTP/1.1\r\nHost: x\r\n"
LINES: Final = b"".join(b"x-%d: y\r\n" % number for number in range(1_000))
CHUNKED: Final = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS: Final = {
    "header lines": (HEAD, LINES),
    "one header line": (HEAD + b"x: ", b"y" * 10_000),
    "one header's name": (HEAD, b"y" * 10_000),
    "a path": (b"GET /", b"y" * 10_000),
    "header lines in small pieces": (HEAD, b"a: b\r\n"),
    "header lines of a second request": (HEAD + b"\r\n" + HEAD, LINES),
    "header lines of an upgrade": (HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n", LINES),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", LINES),
    "a chunk's extension": (CHUNKED + b"2;", b"y" * 10_000),
}


@pytest.mark.parametrize(("begun", "rest"), ENDLESS.values(), ids=ENDLESS)
async def test_headers_without_an_end_are_answered_with_431(begun: bytes, rest: bytes) -> None:
    sockets = OpenSockets(spare=10)
    wire = connect(sockets)
    await send(wire, begun, 1)
    assert await send(wire, rest) <= 100_000
    assert (status(wire), wire.ended) == (431, "closed")


@pytest.mark.parametrize("header", [b"x: " + b"y" * 9_000 + b"\r\n", b"a: b\r\n" * 140, b"x\x01: y\r\n"])
async def test_an_upgrade_that_cannot_be_read_is_answered_and_closed(header: bytes) -> None:
    wire = connect(OpenSockets(spare=10))
    await send(wire, UPGRADE % header, 1)
    assert status(wire) in {400, 431}
    assert wire.ended == "closed"


@pytest.mark.parametrize("hosts", NO_HOST)
@pytest.mark.parametrize(
    "more", [b"", b"Upgrade: websocket\r\nConnection: Upgrade\r\n"], ids=["a request", "an upgrade"]
)
async def test_a_request_without_exactly_one_host_is_refused(hosts: bytes, more: bytes) -> None:
    wire = connect(OpenSockets(spare=10))
    await send(wire, b"GET / HTTP/1.1\r\n%b%b\r\n" % (hosts, more), 1)
    assert (status(wire), wire.ended) == (400, "closed")


@pytest.mark.parametrize(
    "head", [b"1.0\r\n", b"1.1\r\nHost:\r\n", b"1.1\r\nHOST: [::1]:80\r\n", b"1.1\r\nHost: caf\xe9\r\n"]
)
async def test_a_request_with_its_versions_host_is_served(head: bytes) -> None:
    wire = connect(OpenSockets(spare=10))
    await send(wire, b"GET / HTTP/%b\r\n" % head, 1)
    assert status(wire) == 200


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    return bytes([opcode | (0x80 if fin else 0), 0x80 | len(payload)]) + bytes(4) + payload


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        (b"", frame(9, b"x" * 125)),
        (b"", frame(9)),
        (b"", frame(10)),
        (frame(1, fin=False), frame(0, fin=False)),
        (frame(2, b"x", fin=False), frame(0, fin=False) + frame(9)),
    ],
    ids=["pings", "empty pings", "pongs", "empty fragments", "fragments and pings"],
)
async def test_frames_without_a_message_end_their_connection(begun: bytes, rest: bytes) -> None:
    wire = connect(OpenSockets(spare=10))
    await send(wire, UPGRADE % b"", 1)
    assert status(wire) == 101
    await send(wire, begun, 1)
    assert await send(wire, rest * 100) < 1_000_000
    assert not wire.reads or wire.ended
    assert len(wire.written) < 300_000


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    wire = connect(OpenSockets(spare=10), unread_s=0)
    await send(wire, UPGRADE % b"", 1)
    await send(wire, frame(9, b"x" * 125) * 1_000)
    await asyncio.sleep(0)
    assert wire.ended == "aborted"


@pytest.mark.parametrize(
    "begun",
    [b"", HEAD, HEAD + b"\r\n", HEAD + b"\r\nG", HEAD + b"Upgrade: websocket\r\n", CHUNKED + b"2"],
    ids=["nothing", "half a head", "nothing more", "a byte of a second", "half an upgrade", "half a body"],
)
async def test_a_missing_request_head_closes_its_connection(begun: bytes) -> None:
    wire = connect(OpenSockets(spare=10), head_s=0)
    await send(wire, begun, 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert wire.ended


@pytest.mark.parametrize(("request_bytes", "taken"), [(HEAD + b"\r\n", 200), (UPGRADE % b"", 101)])
async def test_a_connection_over_an_addresss_limit_is_refused_and_another_address_answered(
    request_bytes: bytes, taken: int
) -> None:
    sockets = OpenSockets(most=100, spare=2)
    wires = [connect(sockets) for _ in range(13)]
    assert [wire.ended for wire in wires] == [""] * 12 + ["aborted"]
    for wire in wires[9:12]:
        await send(wire, request_bytes, 1)
    assert [status(wire) for wire in wires[9:12]] == [taken, 503, 503]
    other = connect(sockets, "192.0.2.8")
    await send(other, request_bytes, 1)
    assert status(other) == taken


async def test_behind_a_proxy_the_limit_counts_by_the_clients_address() -> None:
    sockets = OpenSockets(most=100, spare=2, proxies=(ip_network("10.0.0.0/8"),))
    answered = []
    for number in range(12):
        wire = connect(sockets, "10.0.0.1")
        client = CLIENT if number < 11 else "192.0.2.8"
        await send(wire, HEAD + b"X-Forwarded-For: " + client.encode() + b"\r\n\r\n", 1)
        answered.append(status(wire))
    assert answered == [200] * 10 + [503, 200]


async def test_requests_wait_outside_while_earlier_ones_are_not_answered() -> None:
    """A client that asks and does not read, or asks faster than it is answered, has a part of its requests here."""
    wire = connect(OpenSockets(spare=10))
    await send(wire, (HEAD + b"\r\n") * 1_000)
    inner = wire.protocol._inner
    assert len(inner.pipeline) <= 8_192 // len(HEAD)
    assert not wire.reads
    for _ in range(20_000):
        await asyncio.sleep(0)
    assert bytes(wire.written).count(b"HTTP/1.1 200") == 1_000 or not wire.reads


@pytest.mark.parametrize("size", range(1, 60))
async def test_requests_are_read_however_they_are_cut(size: int) -> None:
    wire = connect(OpenSockets(spare=10))
    for requests in ((HEAD + b"\r\n") * 3, UPGRADE % b"Up: u\r\n"):
        for at in range(0, len(requests), size):
            await send(wire, requests[at : at + size], 1)
        assert bytes(wire.written).count(b"HTTP/1.1 200") == 3
    assert status(wire) == 101


@pytest.mark.parametrize(
    "offer", [b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk", b"upgrade:TLS/1.2", b"UPGRADE: h2c, foo"]
)
async def test_a_body_is_read_although_another_protocol_is_offered(offer: bytes) -> None:
    """Java's HttpClient offers HTTP/2 with its first request over plain HTTP; a body may contain the same words."""
    body = b"x\r\nUpgrade: h2c\r\n"
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n%s\r\nContent-Length: %d\r\n\r\n"
    wire, told = connect(OpenSockets(), served=echo), head % (offer, len(body))
    for part in (told + body, told, body):  # the second body comes by itself
        await send(wire, part, 1)
    for size in (1, 2, 3, 5, 7):  # split anywhere
        for at in range(0, len(told), size):
            await send(wire, told[at : at + size], 1)
        await send(wire, body, 1)
    for pipelined in (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body), told):
        await send(wire, pipelined + body + told + body, 1)
    assert bytes(wire.written).count(body) == 11


@pytest.mark.parametrize(
    "coding", ["gzip, chunked", "chunked, chunked", "identity, chunked", "chunked\r\nTransfer-Encoding: gzip, chunked"]
)
async def test_a_body_with_another_transfer_coding_than_chunked_is_refused(coding: str) -> None:
    wire = connect(OpenSockets(), served=echo)
    await send(
        wire, f"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode(), 1
    )
    assert (status(wire), wire.ended) in {(501, "closed"), (400, "closed")}
    assert b"\r\n\r\n{}" not in wire.written


@pytest.mark.parametrize("coding", ["chunked", "Chunked", "CHUNKED "])
async def test_a_chunked_body_is_read(coding: str) -> None:
    wire = connect(OpenSockets(), served=echo)
    await send(
        wire, f"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode(), 1
    )
    assert bytes(wire.written).endswith(b"{}")


async def echo(scope: Any, receive: Any, send: Any) -> None:
    del scope
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def stream(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for part in (b"data: a\n\n", b"", b"data: b\n\n"):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("served", [app, stream], ids=["whole", "streamed"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("header", ["", "Connection: keep-alive\r\n", "Connection: close\r\nHost: x\r\n"])
async def test_a_client_of_http_1_0_gets_a_body_that_ends_with_its_connection(
    served: Any, method: str, header: str
) -> None:
    wire = connect(OpenSockets(spare=10), served=served)
    await send(wire, f"{method} / HTTP/1.0\r\n{header}\r\n".encode(), 1)
    head, _, body = bytes(wire.written).partition(b"\r\n\r\n")
    whole = b"ok" if served is app else b"data: a\n\ndata: b\n\n"
    assert body == (b"" if method == "HEAD" else whole)
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert wire.ended == "closed"
