"""Anonymous clients are charged by the address that the trusted proxy reports."""

import asyncio
import json

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from tests.support.servers.shipped_proxy import ShippedProxy
from tests.support.system import Service, System, eventually, get

pytestmark = pytest.mark.system(
    workers=0,
    gateways=({"gateway__trusted_proxies": "127.0.0.0/8"}, {"gateway__trusted_proxies": ""}),
    quotas__address_per_minute=30,
)


@pytest.fixture(scope="module")
def trusting_nobody(gateways: list[Service]) -> Service:
    return gateways[1]


async def erased(url: str, *, headers: dict[str, str], here: str = "127.0.0.1", tries: int = 6) -> int:
    """Return how many of this many erasures succeed."""
    options = {"subprotocols": [Subprotocol("chat.v1.json")], "proxy": None, "local_addr": (here, 0)}
    async with connect(url, additional_headers=headers, **options) as socket:  # type: ignore[arg-type]
        await socket.send(json.dumps({"type": "session.start"}))
        await socket.recv()
        heard = []
        for _ in range(tries):
            await socket.send(json.dumps({"type": "session.delete"}))
            heard.append(json.loads(await socket.recv())["type"])
    return heard.count("session.deleted")


async def test_each_client_behind_the_proxy_has_its_own_limit(gateway: Service) -> None:
    """An address that a client writes into the header does not count, because proxies append theirs."""
    for forged, client in (("", "192.0.2.1"), ("192.0.2.1, ", "192.0.2.2"), ("", "2001:db8::1")):
        assert await erased(gateway.ws, headers={"X-Forwarded-For": forged + client}) == 3
    assert await erased(gateway.ws, headers={"X-Forwarded-For": "192.0.2.2"}) == 0
    assert await erased(gateway.ws, headers={"X-Forwarded-For": "2001:db8::ffff"}) == 0, "one customer has a /64"


async def test_a_header_from_an_untrusted_proxy_is_ignored_and_logged_once(trusting_nobody: Service) -> None:
    here = "127.0.0.77"
    assert await erased(trusting_nobody.ws, headers={"X-Forwarded-For": "192.0.2.9"}, here=here) == 3
    assert await erased(trusting_nobody.ws, headers={"X-Forwarded-For": "192.0.2.10"}, here=here) == 0
    assert await erased(trusting_nobody.ws, headers={}, here="127.0.0.78") == 3
    (line,) = trusting_nobody.logged("proxy_not_trusted")
    assert "REPLYLINE_GATEWAY__TRUSTED_PROXIES" in line["action"]
    assert "127.0.0.77" not in str(line)


async def test_a_client_of_the_shipped_proxy_is_charged_by_its_own_address(gateway: Service, system: System) -> None:
    """Caddy ignores a client's own header."""
    proxy = ShippedProxy([gateway], system.folder)
    try:
        await eventually(lambda: is_served(proxy))
        assert await erased(proxy.ws, headers={"X-Forwarded-For": "192.0.2.20"}, here="127.0.0.80") == 3
    finally:
        proxy.stop()
    assert await erased(gateway.ws, headers={"X-Forwarded-For": "192.0.2.20"}) == 3, "it was not charged"


async def is_served(proxy: ShippedProxy) -> bool:
    page = await asyncio.to_thread(get, f"http://{proxy.address}/")
    return page is not None and page.status == 200
