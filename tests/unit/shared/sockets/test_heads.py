"""Each request at a port is answered and closed: an unreadable request, a wrong method, a second request."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest
import pytest_asyncio
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from gateway.frontends.sockets import serve_sockets
from shared.settings.gateway import GatewaySettings
from shared.sockets.listening import ListenAddress
from shared.telemetry.status import Drain, Readiness, http_response, serve_status

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
PAGE = b"a page"
NO_HOST = (b"", b"Host: a\r\nHost: a\r\n", b"Host: a b\r\n", b"Host: a/ready\r\n", b"Host: a, b\r\n", b"Host: me@a\r\n")
DRAIN = Drain()


def _page(socket: ServerConnection, request: Request) -> Response | None:
    return None if request.path == "/ws" else http_response(HTTPStatus.OK, "text/plain", PAGE)


@pytest_asyncio.fixture(params=["gateway", "operators"])
async def port(request: pytest.FixtureRequest) -> AsyncIterator[int]:
    async def handle(socket: ServerConnection) -> None:
        await socket.wait_closed()

    if request.param == "gateway":
        server = await serve_sockets(handle, GatewaySettings(port=0), _page)
    else:
        server = await serve_status(ListenAddress("127.0.0.1", 0, "HOST", "PORT"), Readiness(drain=DRAIN))
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answer(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(4):
        said = await reader.read()
    writer.close()
    return said


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ([GET + b"X: a\r\n b\r\n\r\n"], 400),
        ([(GET + b"\r\n").replace(b"\r\n", b"\n")], 400),
        ([GET + b"X : a\r\n\r\n"], 400),
        ([GET + b"X: a\0\r\n\r\n"], 400),
        ([b"\x16\x03\x01\r\n\r\n"], 400),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 400),
        ([b"POST /ws HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"], 400),
        ([b"PUT /drain HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"], 405),
        ([b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"], 405),
        ([GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"], 400),
        *(([b"GET /ready HTTP/1.1\r\n%b\r\n" % hosts], 400) for hosts in NO_HOST),
    ],
)
async def test_a_request_that_cannot_be_served_is_answered_and_closed(
    port: int, asked: list[bytes], status: int
) -> None:
    said = await answer(port, *asked)
    assert said.startswith(b"HTTP/1.1 %d " % status), said
    assert not DRAIN.asked.is_set()


@pytest.mark.parametrize("parts", [[GET + b"\r\n" + GET + b"\r\n"], [GET + b"\r", b"\n" + GET, b"\r\nmore"]])
async def test_only_the_first_of_several_pipelined_requests_is_answered(port: int, parts: list[bytes]) -> None:
    said = await answer(port, *parts)
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.split()[1] in (b"200", b"404")


async def test_head_has_no_body(port: int) -> None:
    said = await answer(port, GET.replace(b"GET", b"HEAD") + b"\r\n")
    assert said.endswith(b"\r\n\r\n")
    assert b"Content-Length: 0" not in said


@pytest.mark.parametrize(
    "parts", [[b"GET /ready HTTP/1.0\r\n\r\n"], [b"GET /ready", b" HTTP/", b"1.0\r\nX: HTTP/1.0\r\n\r\n"]]
)
async def test_a_health_check_by_http_1_0_is_answered(port: int, parts: list[bytes]) -> None:
    said = await answer(port, *parts)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in said


async def test_a_websocket_by_http_1_0_is_refused(port: int) -> None:
    asked = GET.replace(b"1.1", b"1.0").replace(b"/ ", b"/ws ")
    said = await answer(port, asked + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    assert said.split()[1] in (b"426", b"404")
