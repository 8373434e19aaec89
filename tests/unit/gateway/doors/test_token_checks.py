"""A token check is charged to its sender's address at every door over HTTP, and an unknown key is looked for first."""

from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from gateway.doors.edge.door import EdgeDoor
from tests.support import tokens
from tests.support.fakes.ai_sdk_doors import FakeCursors
from tests.support.fakes.ai_sdk_doors import door_of as ai_sdk_door
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import door_of, http_of

ADDRESS = "198.51.100.7"
PATHS = [
    ("edge", "GET", "/faq"),
    ("edge", "GET", "/erasures"),
    ("edge", "POST", "/history"),
    ("openai", "GET", f"/v1/responses/resp_{0:024x}.cs.AAAA"),
    ("openai", "DELETE", f"/v1/conversations/conv_{0:024x}"),
    ("ai_sdk", "GET", "/chat/c/stream"),
    ("ai_sdk", "POST", "/chat/c/stop"),
    ("ai_sdk", "DELETE", "/chat/c"),
]


class Keys:
    """The reader of public keys."""

    def __init__(self) -> None:
        self.prepared: list[str] = []

    async def prepare(self, token: str) -> None:
        self.prepared.append(token)


def app_of(door: str, edge: Edge) -> ASGIApp:
    gate, unused = tokens.gate(), Any
    if door == "openai":
        return door_of(edge, gate).app()
    if door == "ai_sdk":
        return ai_sdk_door(edge, FakeCursors(), gate).app()
    return EdgeDoor(http=http_of(edge, gate), signed=None, faq=unused, history=unused, erasing=unused).app()  # type: ignore[arg-type]


@pytest.mark.parametrize(("door", "method", "path"), PATHS)
async def test_a_bad_token_is_charged_before_its_key_is_fetched(door: str, method: str, path: str) -> None:
    edge, keys = Edge(), Keys()
    edge.gateway.jwks = keys  # type: ignore[assignment]
    headers = {"authorization": "Bearer a.b.c", "x-forwarded-for": ADDRESS}
    transport = httpx2.ASGITransport(app=app_of(door, edge))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as client:
        assert (await client.request(method, path)).status_code == 401
        assert [(kind, caller.address) for kind, caller in edge.quotas.here] == [("token", ADDRESS)]
        assert keys.prepared == ["a.b.c"]
        edge.quotas.used_up.add("token")
        assert (await client.request(method, path)).status_code == 429
