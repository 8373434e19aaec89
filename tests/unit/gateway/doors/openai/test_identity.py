"""The owner of a conversation at a gateway that checks tokens."""

import httpx2
import pytest

from gateway.exchange import own_sessions
from tests.support import tokens
from tests.support.fakes.gateways import Edge
from tests.support.fakes.openai_doors import BASE, ask, chat, door_of
from tests.support.tokens import bearer_of as of


def client_of(edge: Edge) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=door_of(edge, tokens.gate()).app())
    return httpx2.AsyncClient(transport=transport, base_url=BASE)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "unauthorized"),
        ({"authorization": "Bearer sk-any"}, "unauthorized"),
        ({"authorization": "Basic YTpi"}, "unauthorized"),
        (of("alice", exp=1), "token_expired"),
    ],
)
async def test_a_missing_or_bad_token_is_reported(headers: dict[str, str], code: str) -> None:
    edge = Edge()
    async with client_of(edge) as client:
        for path in ("/chat/completions", "/responses"):
            got = await client.post(path, json=chat("Who?") | {"input": "Who?"}, headers=headers)
            assert (got.status_code, got.json()["error"]["code"]) == (401, code)
    assert edge.asked == []
    assert edge.gateway.connections._open == {}


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_strangers_evict_no_first_try(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a question with a valid token gets a conversation's name."""
    monkeypatch.setattr(own_sessions, "_MAX_TRIES", 1)
    edge, alice = Edge(), of("alice")
    body, retry = chat("Who?") | {"input": "Who?"}, {"x-stainless-retry-count": "1"}
    async with client_of(edge) as client:
        await ask(client, edge, body, "Ada.", path=path, **alice)
        for headers in (of("mallory", exp=1), {"authorization": "Bearer x.y.z"}, {}):
            assert (await client.post(path, json=chat("?") | {"input": "?"}, headers=headers)).status_code == 401
        again = await client.post(path, json=body, headers=alice | retry)
    assert again.status_code == 200
    assert len(edge.asked) == 1


@pytest.mark.parametrize(("path", "field"), [("/chat/completions", "messages"), ("/responses", "input")])
async def test_system_messages_count_only_with_a_token_that_may_instruct(path: str, field: str) -> None:
    edge = Edge()
    body = {"model": "replyline", field: [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "?"}]}
    async with client_of(edge) as client:
        ignored = await ask(client, edge, body, "Mat.", path=path, **of("alice"))
        assert (ignored.status_code, ignored.headers["replyline-ignored"]) == (200, "instructions")
        heeded = await ask(client, edge, body, "Mat.", path=path, **of("alice", instructions=True))
        assert (heeded.status_code, heeded.headers.get("replyline-ignored")) == (200, None)
    assert [(asked.instructions, asked.input) for asked in edge.asked] == [(None, "?"), ("Rhyme.", "?")]


async def test_a_response_belongs_to_its_subject_only() -> None:
    """Another's of the same name is another; so is its conversation."""
    edge = Edge()
    body = {"model": "replyline", "input": "Who?", "conversation": "c"}
    async with client_of(edge) as client:
        first = (await ask(client, edge, body, "Ada.", path="/responses", **of("alice"))).json()
        await ask(client, edge, body, "Bob.", path="/responses", **of("bob"))
        assert edge.asked[0].session_id != edge.asked[1].session_id
        url = f"/responses/{first['id']}"
        assert (await client.get(url, headers=of("alice"))).json()["output"] == first["output"]
        for stranger in (of("bob"), of("alice", tenant="other")):
            for method in ("GET", "DELETE"):
                assert (await client.request(method, url, headers=stranger)).status_code == 404
            goes_on = {"model": "replyline", "input": "And?", "previous_response_id": first["id"]}
            assert (await client.post("/responses", json=goes_on, headers=stranger)).status_code == 404
