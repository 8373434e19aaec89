"""A deadline counts from a request's receipt: what a door waits for before it asks is part of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from shared.process.clock import now_unix_ms
from tests.support import tokens
from tests.support.fakes.gateways import Edge, until
from tests.support.fakes.openai_doors import BASE, answer, door_of
from tests.unit.gateway.doors.test_isolation import DOORS, answer_all

REFERENCE = {"type": "item_reference", "id": f"msg_{1:024x}.csomebody"}


def slow(work: Callable[..., Awaitable[Any]], ended: list[float]) -> Callable[..., Awaitable[Any]]:
    """Return a step that moves the clock forward; `ended` has the time after it."""

    async def done(*args: Any, **options: Any) -> Any:
        result, began = await work(*args, **options), now_unix_ms()
        while now_unix_ms() < began + 3:
            pass
        ended.append(now_unix_ms())
        return result

    return done


class Keys:
    async def prepare(self, token: str) -> None:
        del token


@pytest.mark.parametrize("door", ["chat", "responses", "ai_sdk", "ai_sdk_socket", "grpc_respond"])
async def test_a_tokens_check_counts_towards_the_questions_deadline(door: str) -> None:
    edge, keys, ended = Edge(), Keys(), list[float]()
    keys.prepare = slow(keys.prepare, ended)  # type: ignore[method-assign, assignment]
    edge.gateway.jwks = keys  # type: ignore[assignment]
    async with DOORS[door](edge, tokens.gate(), {}) as ask:
        asking = asyncio.ensure_future(ask(tokens.bearer_of("alice"), "a", {}))
        await until(lambda: edge.asked)
        assert (edge.asked[0].created_unix_ms or ended[0]) <= ended[0] - 2
        await answer_all(edge, asking)


async def test_a_lookup_of_named_answers_counts_towards_the_questions_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    edge, ended = Edge(), list[float]()
    monkeypatch.setattr(edge.history, "turns", slow(edge.history.turns, ended))
    body = {"model": "replyline", "input": [REFERENCE, {"role": "user", "content": "When?"}]}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door_of(edge).app()), base_url=BASE) as client:
        asking = asyncio.ensure_future(client.post("/responses", json=body))
        await until(lambda: edge.asked)
        assert (edge.asked[0].created_unix_ms or ended[0]) <= ended[0] - 2
        await answer(edge, edge.asked[0].id, "1815.", asked=edge.asked[0])
        assert (await asking).status_code == 200
