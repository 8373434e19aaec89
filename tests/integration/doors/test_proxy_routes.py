"""Each door of a gateway answers through the shipped proxy as it answers at its own port."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import httpx2
import pytest
import pytest_asyncio
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from websockets.asyncio.client import connect

from ops.stack.processes import Child
from tests.integration.commands.test_ports import GATEWAY, environment
from tests.support.servers.shipped_proxy import ShippedProxy
from tests.support.system import CURSOR_SECRET, Service

HTTP: Final = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses/resp_1"),
    ("POST", "/v1/conversations"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/replyline"),
    ("GET", "/v1"),
    ("POST", "/chat/completions"),
    ("POST", "//v1//chat/completions/"),
    ("GET", "/models/"),
    ("GET", "/openapi.json"),
    ("POST", "/ai-sdk/chat"),
    ("GET", "/ai-sdk/chat/c1/stream"),
    ("GET", "/ai-sdk"),
    ("POST", "/channels/chatwoot"),
    ("GET", "/edge/faq"),
]
PAGES: Final = [("GET", "/"), ("GET", "/widget/index.html"), ("GET", "/favicon.ico"), ("GET", "/ws")]


class Doors(NamedTuple):
    chat: str
    http: str
    grpc: str
    proxy: ShippedProxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Doors]:
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "key").write_text("a secret of the help desk")
    env = environment(
        REPLYLINE_CHATWOOT__URL="http://127.0.0.1:1",
        REPLYLINE_CHATWOOT__TOKEN_FILE=str(folder / "key"),
        REPLYLINE_CHATWOOT__SECRET_FILE=str(folder / "key"),
        REPLYLINE_GATEWAY__CURSOR_SECRET_FILE=str(CURSOR_SECRET),
    )
    chat, http, grpc, operators = (
        f"127.0.0.1:{env[f'REPLYLINE_GATEWAY__{name}']}" for name in ("PORT", "HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    )
    child = Child.start(GATEWAY, env=env, log=folder / "log")
    gateway = Service(child=child, address=chat, operators=operators, log=folder / "log")
    proxy = ShippedProxy([gateway], folder, http=http, grpc=grpc)
    try:
        await wait_for_page(proxy)
        yield Doors(chat, http, grpc, proxy)
    finally:
        proxy.stop()
        child.signal(signal.SIGTERM)
        child.stop(timeout_s=20)


async def wait_for_page(proxy: ShippedProxy) -> None:
    """Wait until the proxy sees that the gateway is ready, at each of its ports: it asks about them one by one."""
    async with asyncio.timeout(30), httpx2.AsyncClient() as client:
        for path in ("/", "/v1/models"):
            while True:
                if await _status(client, f"http://{proxy.address}{path}") in {200, 401}:
                    break
                await asyncio.sleep(0.1)


async def _status(client: httpx2.AsyncClient, url: str) -> int | None:
    try:
        return (await client.get(url)).status_code
    except httpx2.TransportError:
        return None


@pytest.mark.parametrize(("method", "path"), [*HTTP, *PAGES])
async def test_a_path_answers_through_the_proxy_as_at_its_port(doors: Doors, method: str, path: str) -> None:
    own = doors.http if (method, path) in HTTP else doors.chat
    body = b"{}" if method == "POST" else None
    async with httpx2.AsyncClient() as client:
        asked = [await client.request(method, f"http://{at}{path}", content=body) for at in (own, doors.proxy.address)]
    directly, proxied = [(page.status_code, page.headers.get("content-type")) for page in asked]
    assert proxied == directly
    assert proxied[0] != 502


async def test_the_websocket_opens_through_the_proxy(doors: Doors) -> None:
    async with connect(doors.proxy.ws) as socket:
        await socket.close()


async def test_grpc_answers_through_the_proxy(doors: Doors) -> None:
    async with aio.insecure_channel(doors.proxy.address) as channel:
        told = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert told.status == health_pb2.HealthCheckResponse.SERVING
