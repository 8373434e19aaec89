"""The desk's paths: a person of a tenant takes that tenant's conversations, writes, and gives them back."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from gateway.doors.desk.door import MAX_TEXT_CHARS, DeskDoor
from shared.wire.messages import PeopleMove, ResponseCreate, SessionStart
from tests.support import tokens
from tests.support.fakes.gateways import Edge, FakeConnection, quiet
from tests.support.fakes.openai_doors import http_of
from tests.support.fakes.people_log import PeopleTopic


@dataclass
class Desk:
    topic: PeopleTopic
    edge: Edge
    client: httpx2.AsyncClient
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers=self.headers | headers)

    async def post(self, path: str, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
        return await self.client.post(path, json={"session_id": "s"} | body, headers=self.headers | (headers or {}))

    async def customer(self) -> FakeConnection:
        client = await self.edge.connect().say(SessionStart(session_id="s", talk=0))
        self.topic.write(PeopleMove(tenant="demo", session_id="s", epoch=1, to="waiting", reason="requested"))
        return client


def bearing(subject: str = "anna", **claims: Any) -> dict[str, str]:
    own = {"role": "agent", "tenant": "demo"} | claims
    return tokens.bearer_of(subject, **{name: value for name, value in own.items() if value is not None})


def served(topic: PeopleTopic, edge: Edge, *, checks: bool, peer: str = "127.0.0.1") -> httpx2.AsyncClient:
    door = DeskDoor(
        http=http_of(edge, tokens.gate() if checks else None),
        talking=edge.serving.talking,
        history=edge.history,  # type: ignore[arg-type]
        tenant="demo",
    )
    transport = httpx2.ASGITransport(app=door.app(), client=(peer, 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081")


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    topic = PeopleTopic()
    edge = topic.gateway()
    async with served(topic, edge, checks=True) as client:
        yield Desk(topic, edge, client, bearing())


async def test_a_person_takes_a_conversation_writes_and_hands_it_back(desk: Desk) -> None:
    customer = await desk.customer()
    [waiting] = (await desk.get("/chats")).json()["chats"]
    assert waiting | {"since": 0} == {
        "session_id": "s",
        "state": "waiting",
        "epoch": 1,
        "since": 0,
        "reason": "requested",
        "language": "en",
    }
    taken = (await desk.post("/move", to="taken", epoch=1)).json()
    assert (taken["state"], taken["mine"], taken["name"]) == ("taken", True, "anna")
    await customer.say(ResponseCreate(event_id="e", input="Where is my parcel?"))
    await quiet()
    assert (await desk.post("/say", message_id="m", text="On its way.")).json() == {"n": 4}
    whole = (await desk.get("/chat?session_id=s")).json()
    assert [(said["by"], said["text"]) for said in whole["said"]] == [
        ("customer", "Where is my parcel?"),
        ("agent", "On its way."),
    ]
    assert (await desk.post("/move", to="bot", epoch=2)).json()["state"] == "bot"
    assert (await desk.get("/chats")).json()["chats"] == []
    await quiet()
    assert [turn["source"] for turn in (await desk.get("/chat?session_id=s")).json()["turns"]] == []


async def test_the_list_is_sent_as_soon_as_it_changes(desk: Desk) -> None:
    first = (await desk.get("/chats")).json()
    asking = asyncio.create_task(desk.get(f"/chats?after={first['next']}"))
    await quiet()
    assert not asking.done()
    desk.topic.write(PeopleMove(tenant="other", session_id="s", epoch=1, to="waiting"))
    await quiet()
    assert not asking.done(), "another tenant's conversation"
    await desk.customer()
    assert [chat["session_id"] for chat in (await asking).json()["chats"]] == ["s"]


async def test_a_gateway_that_stops_does_not_wait_for_a_change_of_the_list(desk: Desk) -> None:
    asking = asyncio.create_task(desk.get("/chats?after=0"))
    await quiet()
    assert not asking.done()
    desk.edge.serving.talking.log.leave()
    assert (await asking).json() == {"next": 0, "chats": []}


async def test_a_conversation_that_another_person_has_is_refused_by_name(desk: Desk) -> None:
    await desk.customer()
    await desk.post("/move", to="taken", epoch=1)
    bert = bearing("bert", name="Bert from support")
    for path, body in (("/move", {"to": "taken", "epoch": 1}), ("/say", {"message_id": "m", "text": "Hi"})):
        got = await desk.post(path, bert, **body)
        assert (got.status_code, "anna has" in got.json()["error"]["message"]) == (409, True)
    assert (await desk.post("/move", bert, to="taken", epoch=2)).json()["name"] == "Bert from support"


@pytest.mark.parametrize("path", ["/chats", "/chat?session_id=s"])
@pytest.mark.parametrize(
    ("claims", "status", "code"),
    [
        pytest.param(None, 401, "unauthorized", id="no token"),
        pytest.param({"role": None}, 403, "not_an_agent", id="a customer's token"),
        pytest.param({"role": ["agent"]}, 403, "not_an_agent", id="a role of another form"),
        pytest.param({"exp": 1}, 401, "token_expired", id="an expired token"),
    ],
)
async def test_only_a_token_of_an_agent_opens_the_desk(
    desk: Desk, path: str, claims: dict[str, Any] | None, status: int, code: str
) -> None:
    headers = {} if claims is None else bearing("jane", **claims)
    await desk.customer()
    desk.headers = {}
    got = await desk.get(path, **headers)
    assert (got.status_code, got.json()["error"]["code"]) == (status, code)
    for path_of_post in ("/move", "/say"):
        posted = await desk.post(path_of_post, headers, to="taken", message_id="m", text="Hi")
        assert posted.status_code == status
    assert len(desk.topic.records) == 1


async def test_another_tenants_agent_does_not_reach_a_conversation(desk: Desk) -> None:
    await desk.customer()
    desk.headers = bearing(tenant="other")
    assert (await desk.get("/chats")).json()["chats"] == []
    assert (await desk.get("/chat?session_id=s")).status_code == 404
    for path in ("/move", "/say"):
        got = await desk.post(path, to="taken", message_id="m", text="Hi")
        assert (got.status_code, got.json()["error"]["code"]) == (404, "conversation_not_found")
    assert len(desk.topic.records) == 1


async def test_a_token_that_expires_in_mid_chat_loses_nothing(desk: Desk) -> None:
    customer = await desk.customer()
    await desk.post("/move", to="taken")
    expired = bearing(exp=1)
    got = await desk.post("/say", expired, message_id="m", text="Hello")
    assert (got.status_code, got.json()["error"]["code"]) == (401, "token_expired")
    assert (await desk.post("/say", message_id="m", text="Hello")).status_code == 200
    await quiet()
    assert [message.text for message in customer.heard if hasattr(message, "n")] == ["Hello"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"text": ""}, 400, "not empty"),
        ({"text": " \n\t"}, 400, "not blank"),
        ({"text": "x" * (MAX_TEXT_CHARS + 1)}, 400, f"length <= {MAX_TEXT_CHARS}"),
        ({"text": "x" * 100_000}, 413, "65536 bytes"),
        ({"text": None}, 400, "text"),
        ({"text": "x", "message_id": ""}, 400, "message_id"),
        ({"text": "x", "session_id": "a b"}, 400, "session_id"),
        ({"text": "x", "session_id": "unknown"}, 404, "'unknown'"),
    ],
)
async def test_a_wrong_message_is_refused_in_one_line(desk: Desk, body: dict[str, Any], status: int, word: str) -> None:
    await desk.customer()
    await desk.post("/move", to="taken")
    got = await desk.post("/say", **({"message_id": "m"} | body))
    error = got.json()["error"]
    assert (got.status_code, word in error["message"]) == (status, True), error
    assert "\n" not in error["message"]
    assert desk.topic.said() == []


@pytest.mark.parametrize("to", ["taken", "bot", "resolved"])
async def test_a_move_that_cannot_count_is_not_written(desk: Desk, to: str) -> None:
    await desk.customer()
    await desk.post("/move", to="resolved")
    got = await desk.post("/move", to=to)
    assert (got.status_code, got.json()["error"]["code"]) == (409, "lost_race")
    assert len(desk.topic.records) == 2


@pytest.mark.parametrize(
    ("claims", "name"),
    [({"name": "Anna\u202e\n"}, "Anna"), ({"name": 7}, "a b"), ({"name": "x" * 99}, "x" * 64)],
)
async def test_customers_see_a_name_of_printable_characters(desk: Desk, claims: dict[str, Any], name: str) -> None:
    await desk.customer()
    assert (await desk.post("/move", bearing("a\u2066 b", **claims), to="taken")).json()["name"] == name


@pytest.mark.parametrize("role", [None, True, 1, "", "Agent", "agent ", "admin", ["agent"], {"agent": True}])
async def test_a_role_of_another_type_or_name_is_none(desk: Desk, role: Any) -> None:
    await desk.customer()
    got = await desk.get("/chats", **bearing(role=role))
    assert (got.status_code, got.json()["error"]["code"]) == (403, "not_an_agent")


@pytest.mark.parametrize(
    "body", [{}, {"to": "away"}, {"to": "taken", "epoch": -1}, {"to": "taken", "session_id": "unknown"}]
)
async def test_a_wrong_move_changes_nothing(desk: Desk, body: dict[str, Any]) -> None:
    await desk.customer()
    assert (await desk.post("/move", **body)).status_code in {400, 404}
    assert len(desk.topic.records) == 1


@pytest.mark.parametrize("after", ["x", "-1", "1" * 40, "٣"])
async def test_a_wrong_number_is_refused(desk: Desk, after: str) -> None:
    got = await desk.get(f"/chats?after={after}")
    assert (got.status_code, got.json()["error"]["param"]) == (400, "after")


async def test_a_number_of_a_log_before_this_one_is_answered_at_once(desk: Desk) -> None:
    async with asyncio.timeout(1):
        assert (await desk.get("/chats?after=4711")).json() == {"next": 0, "chats": []}


LOCAL = {"host": "127.0.0.1:8081"}


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {"host": "localhost:8081", "origin": "http://localhost:8081"}, 200),
        ("192.0.2.7", {}, 403),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 403),
        ("127.0.0.1", {"host": "evil.example"}, 403),
        ("127.0.0.1", {"origin": "https://evil.example"}, 403),
        ("127.0.0.1", {"origin": "null"}, 403),
        ("127.0.0.1", {"host": ""}, 403),
        ("127.0.0.1", {"host": "["}, 403),
        ("127.0.0.1", {"host": "a]b"}, 403),
        ("127.0.0.1", {"host": "127.0.0.1.evil.example"}, 403),
        ("127.0.0.1", {"origin": "http://["}, 403),
        ("127.0.0.1", {"origin": "http://127.0.0.1:9999"}, 403),
        ("127.0.0.1", {"x-real-ip": "192.0.2.7"}, 403),
        ("127.0.0.1", {"x-forwarded-proto": "https"}, 403),
        ("127.0.0.1", {"via": "1.1 proxy"}, 403),
    ],
)
async def test_without_token_checks_only_this_machine_reaches_the_desk(
    peer: str, headers: dict[str, str], status: int
) -> None:
    topic = PeopleTopic()
    edge = topic.gateway()
    async with served(topic, edge, checks=False, peer=peer) as client:
        desk = Desk(topic, edge, client, LOCAL | {"replyline-agent": "Anna"})
        await desk.customer()
        assert (await desk.get("/chats", **headers)).status_code == status
        got = await desk.post("/move", headers, to="taken")
        assert got.status_code == status
        assert status != 200 or got.json()["name"] == "Anna"


@pytest.mark.parametrize("file", ["desk.js", "desk.css", "chat-dom.js", "replyline-browser.js"])
async def test_the_pages_files_need_no_token_and_run_no_foreign_script(desk: Desk, file: str) -> None:
    got = await desk.client.get(f"/{file}")
    assert (got.status_code, len(got.content) > 100) == (200, True)
    assert "script-src 'self'" in got.headers["content-security-policy"]
    assert (await desk.client.get(f"/../{file}x")).status_code == 404


@pytest.mark.parametrize(
    ("sent", "name"), [("安娜".encode(), "安娜"), ("Zoë".encode("latin-1"), "Zoë"), (b" \t", "Agent")]
)
async def test_without_token_checks_the_header_names_the_person_in_any_script(sent: bytes, name: str) -> None:
    topic = PeopleTopic()
    async with served(topic, topic.gateway(), checks=False) as client:
        desk = Desk(topic, topic.readers[0], client, {})
        await desk.customer()
        headers = [(b"host", b"127.0.0.1:8081"), (b"replyline-agent", sent)]
        got = await client.post("/move", json={"session_id": "s", "to": "taken"}, headers=headers)
        assert got.json()["name"] == name
