"""A body that is refused costs its client's address as much as decoding it costs the gateway."""

import json
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from gateway.access.charges import Caller, Tariff
from gateway.access.quotas import Quotas
from shared.errors import ProtocolError
from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.support.fakes.ai_sdk_doors import FakeCursors
from tests.support.fakes.ai_sdk_doors import door_of as ai_sdk_door
from tests.support.fakes.gateway_services import FakeQuotas
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import chat
from tests.support.fakes.openai_doors import door_of as openai_door

SOUND = chat("How do I return an item?")
UI = {"id": "c", "messages": [{"role": "user", "parts": [{"type": "text", "text": "How do I return an item?"}]}]}
DOORS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "chat completions": (openai_door, "/v1/chat/completions", SOUND),
    "responses": (openai_door, "/v1/responses", {"model": "replyline", "input": "How do I return an item?"}),
    "ai sdk": (lambda edge: ai_sdk_door(edge, FakeCursors()), "/chat", UI),
}


@pytest.mark.parametrize("door", DOORS)
async def test_after_too_many_refusals_a_body_is_not_decoded(door: str) -> None:
    make, path, sound = DOORS[door]
    edge = Edge(kafka_is_away=True, quotas=FakeQuotas(refusals_left=2))
    bad = b"[" + b"{}," * 100
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=make(edge).app(), client=("10.0.0.7", 1)), base_url="http://gateway"
    ) as client:
        answers = [await client.post(path, content=each) for each in (json.dumps(sound).encode(), bad, bad, bad)]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 429]
    assert edge.quotas.refused == [("10.0.0.7", len(bad))] * 2


def refuse(quotas: Quotas, address: str, num_bytes: int, times: int) -> int:
    """Return how many of these refusals were decoded."""
    decoded = 0
    for _ in range(times):
        with suppress(ProtocolError), quotas.charging_refusals(address, b"x" * num_bytes):
            decoded += 1
            raise ProtocolError("bad_json", "no")
    return decoded


@pytest.fixture
def quotas() -> Quotas:
    return Quotas(Tariff(QuotaSettings(address_per_minute=100), HandoffSettings()), RedisSettings())


@pytest.mark.parametrize(("num_bytes", "decoded"), [(10, 100), (65_536, 4)])
def test_a_long_body_costs_more_than_a_short_one(quotas: Quotas, num_bytes: int, decoded: int) -> None:
    assert refuse(quotas, "a", num_bytes, 150) == decoded
    assert refuse(quotas, "b", num_bytes, 1) == 1


def test_what_is_understood_costs_nothing_and_refusals_cost_no_questions(quotas: Quotas) -> None:
    for _ in range(300):
        with quotas.charging_refusals("a", b"x" * 65_536):
            pass
    assert refuse(quotas, "a", 65_536, 10) == 4
    quotas.charge_here("ask", Caller(SessionKey("demo", "s"), address="a"))
