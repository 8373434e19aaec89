"""At every door two askers of the same words have two conversations, and only a retry finds the first answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from gateway.access.identity import TokenGate
from gateway.destination.memory_watch import MemoryWatch
from gateway.doors.chatwoot.door import ChatwootDoor
from gateway.doors.chatwoot.events import decode_errand
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.exchange.question import digest
from gateway.frontends.websocket import WebSocketFrontend
from gateway.request.cursor import CursorKey
from ops.stack.processes import free_port
from shared.settings.gateway import GatewaySettings
from shared.wire.session_key import SessionKey
from tests.support import tokens
from tests.support.fakes.ai_sdk_doors import ChatPage, FakeCursors, chat, client_of, parts_of, text_of
from tests.support.fakes.ai_sdk_doors import door_of as ai_sdk_door
from tests.support.fakes.gateways import Edge, until
from tests.support.fakes.grpc_doors import all_of, said, serving
from tests.support.fakes.grpc_doors import text_of as grpc_text
from tests.support.fakes.openai_doors import BASE, answer, door_of, http_of
from tests.support.fakes.openai_doors import chat as completion
from tests.support.servers.chatwoot import SECRET, message_created, signed

WORDS = "Where is my parcel and when does it arrive?"
RETRY, KEY, COUNTER = {"x-stainless-retry-count": "1"}, {"idempotency-key": "k" * 16}, {"idempotency-key": "1" * 15}
SHARED = {"user": "a@example.com", "safety_identifier": "a@example.com", "prompt_cache_key": "app-v1"}
NAMED: list[dict[str, str]] = [{}, *({name: value} for name, value in SHARED.items())]

Sender = dict[str, str]
Ask = Callable[[Sender, str, dict[str, str]], Awaitable[str]]
"""Asks `WORDS` by these headers as the asker of that name, marked so; returns the answer's text."""
Door = Callable[[Edge, TokenGate | None, dict[str, str]], AbstractAsyncContextManager[Ask]]


def _http(path: str, body: dict[str, Any], text: Callable[[Any], str]) -> Door:
    @asynccontextmanager
    async def opened(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
        door = door_of(edge, gate)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door.app()), base_url=BASE) as client:

            async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
                del name
                got = await client.post(path, json=body | named, headers=sender | mark)
                return text(got.json()) if got.status_code == 200 else got.text

            yield ask
        await door.http.exchanges.stop()

    return opened


@asynccontextmanager
async def ai_sdk(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
    async with client_of(ai_sdk_door(edge, FakeCursors(), gate)) as client:

        async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
            chat_id = "chat" if gate is not None else f"chat-{name}"  # a subject's own, or else random
            got = await client.post("/chat", json=chat(WORDS, id=chat_id) | named, headers=sender | mark)
            return text_of(parts_of(got.text))

        yield ask


@asynccontextmanager
async def ai_sdk_socket(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
    door = ai_sdk_door(edge, FakeCursors(), gate)
    async with AsyncExitStack() as closing:

        async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
            page = ChatPage(door, **sender)
            closing.push_async_callback(page.leave)
            chat_id = "chat" if gate is not None else f"chat-{name}"
            page.send("send", name, **chat(WORDS, id=chat_id), **named, headers=sender | mark)
            await until(lambda: page.of(name)[-1:] == ["end"])
            return text_of([frame.get("chunk", {}) for frame in page.told])

        yield ask


@asynccontextmanager
async def grpc_respond(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
    async with serving(edge, gate) as client:

        async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
            del name
            request = v1.RespondRequest(input=WORDS, metadata=named)
            return grpc_text(await all_of(client.call("Respond", request, tuple((sender | mark).items()))))

        yield ask


@asynccontextmanager
async def grpc_chat(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
    """Each asker continues its own session."""
    sessions = dict[str, str]()
    async with serving(edge, gate) as client:

        async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
            call = client.chat(tuple((sender | mark).items()))
            await call.write(said(session_start=v1.SessionStart(session_id=sessions.get(name))))
            sessions[name] = (await call.read()).session_created.session_id
            await call.write(said(response_create=v1.ResponseCreate(event_id="e", input=WORDS, metadata=named)))
            await call.done_writing()
            return grpc_text(await all_of(call))

        yield ask


@asynccontextmanager
async def websocket(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
    sessions, port, nothing = dict[str, str](), free_port(), Any
    frontend = WebSocketFrontend(
        gateway=edge.gateway,
        settings=GatewaySettings(port=port),
        session_limits=http_of(edge).exchanges.session_limits,
        tenant="demo",
        gate=gate,
        memory=MemoryWatch(),
        files=nothing,  # type: ignore[arg-type]
    )
    server = await frontend.listen()

    async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
        del mark
        async with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=sender) as socket:
            token = sender.get("authorization", "").removeprefix("Bearer ") or None
            await socket.send(json.dumps({"type": "session.start", "session_id": sessions.get(name), "token": token}))
            sessions[name] = json.loads(await socket.recv())["session_id"]
            asked = {"type": "response.create", "event_id": "e", "input": WORDS, "metadata": named}
            await socket.send(json.dumps(asked))
            async for message in socket:
                if (told := json.loads(message))["type"] == "response.done":
                    return str(told["response"]["output_text"])
        raise AssertionError("no answer")

    yield ask
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def chatwoot(edge: Edge, gate: TokenGate | None, named: dict[str, str]) -> AsyncIterator[Ask]:
    """An asker is a conversation; each post has its own delivery id. The text is the answer's id."""
    del gate
    taken = list[Any]()

    class Posts:
        async def publish(self, record: Any) -> None:
            taken.append(decode_errand(record.value))

    posts: Any = Posts()
    door = ChatwootDoor(http=http_of(edge), producer=posts, topic="chat.posts", key=SECRET)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door.app()), base_url="http://gateway") as client:

        async def ask(sender: Sender, name: str, mark: dict[str, str]) -> str:
            body = message_created(1 + ord(name), WORDS, **named)
            headers = signed(body, sent_s=time.time()) | sender | mark
            assert (await client.post("/chatwoot", content=body, headers=headers)).json() == {"taken": True}
            errand = taken.pop()
            points = CursorKey(b"secret").seal(SessionKey("demo", errand.session_id)).read(errand.cursor)
            assert points
            return points[0].response_id

        yield ask


DOORS: dict[str, Door] = {
    "chat": _http("/chat/completions", completion(WORDS), lambda got: got["choices"][0]["message"]["content"]),
    "responses": _http(
        "/responses", {"model": "replyline", "input": WORDS}, lambda got: got["output"][0]["content"][0]["text"]
    ),
    "ai_sdk": ai_sdk,
    "ai_sdk_socket": ai_sdk_socket,
    "grpc_respond": grpc_respond,
    "grpc_chat": grpc_chat,
    "websocket": websocket,
    "chatwoot": chatwoot,
}


async def answer_all(edge: Edge, *answers: "asyncio.Future[str]") -> list[str]:
    """Answer each open question with its id; return what the askers received."""
    for asked in edge.asked:
        if edge.gateway.inflight.get(asked.id) is not None:
            await answer(edge, asked.id, asked.id, asked=asked)
    return await asyncio.gather(*answers)


@pytest.mark.parametrize("mark", [{}, RETRY, KEY], ids=["unmarked", "retry", "key"])
@pytest.mark.parametrize("named", NAMED, ids=["unnamed", *SHARED])
@pytest.mark.parametrize("checked", [False, True], ids=["addresses", "tokens"])
@pytest.mark.parametrize("door", DOORS)
async def test_two_askers_of_the_same_words_have_nothing_in_common(
    door: str, mark: dict[str, str], named: dict[str, str], *, checked: bool
) -> None:
    one, other = (
        (tokens.bearer_of("alice"), tokens.bearer_of("bob"))
        if checked
        else ({"x-forwarded-for": "192.0.2.1"}, {"x-forwarded-for": "192.0.2.2"})
    )
    edge, first_mark = Edge(), {} if mark == RETRY else mark
    async with DOORS[door](edge, tokens.gate() if checked else None, named) as ask:
        first = asyncio.ensure_future(ask(one, "a", first_mark))
        await until(lambda: edge.asked)
        second = asyncio.ensure_future(ask(other, "b", mark))
        await until(lambda: len(edge.asked) == 2)
        assert await answer_all(edge, first, second) == [asked.id for asked in edge.asked]
        assert edge.cancelled == []
        assert edge.asked[0].session_id != edge.asked[1].session_id
        # A retry by the first asker gets its own first answer, and no question is asked again.
        # A mark is enough with a token, or in a named chat. gRPC's is its library's own: no client can write it.
        if mark == KEY or (door != "grpc_respond" and (checked or door not in {"chat", "responses"})):
            assert await ask(one, "a", mark or RETRY) == edge.asked[0].id
            assert await ask(other, "b", mark or RETRY) == edge.asked[1].id
    assert len(edge.asked) == 2
    # `None` makes the worker read from history: of a session that no other asker can reach.
    assert all(not asked.turns for asked in edge.asked)


@pytest.mark.parametrize("mark", [RETRY, KEY, COUNTER], ids=["retry", "key", "counter"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8::1", "2001:db8::2"),
        ("unknown", "unknown"),
        ("_one", "_other"),
        ("192.0.2.1, ?", "192.0.2.1, ?"),
        ("192.0.2.1", "192.0.2.1"),
    ],
    ids=["network", "unknown", "hidden", "unreadable", "one address"],
)
@pytest.mark.parametrize("door", [name for name in DOORS if name not in {"chatwoot", "grpc_chat", "websocket"}])
async def test_clients_that_are_charged_as_one_share_no_conversation(
    door: str, mark: dict[str, str], one: str, other: str
) -> None:
    edge = Edge()
    async with DOORS[door](edge, None, {}) as ask:
        first = asyncio.ensure_future(ask({"x-forwarded-for": one}, "a", {} if mark == RETRY else mark))
        await until(lambda: edge.asked)
        their_mark = {"idempotency-key": "2" * 16} if mark == KEY and other == "192.0.2.1" else mark
        second = asyncio.ensure_future(ask({"x-forwarded-for": other}, "b", their_mark))
        await until(lambda: len(edge.asked) == 2)
        assert await answer_all(edge, first, second) == [asked.id for asked in edge.asked]
    assert edge.asked[0].session_id != edge.asked[1].session_id
    assert all(not asked.turns for asked in edge.asked)


@pytest.mark.parametrize("door", ["chat", "responses", "grpc_respond"])
async def test_keys_are_distinguished_to_their_last_character(door: str) -> None:
    edge, sender = Edge(), {"x-forwarded-for": "192.0.2.1"}
    async with DOORS[door](edge, None, {}) as ask:
        asking = list[asyncio.Future[str]]()
        for number, end in enumerate("12"):
            asking.append(asyncio.ensure_future(ask(sender, "a", {"idempotency-key": "k" * 255 + end})))
            await until(lambda number=number: len(edge.asked) > number)  # type: ignore[misc]
        assert await answer_all(edge, *asking) == [asked.id for asked in edge.asked]
    assert edge.asked[0].session_id != edge.asked[1].session_id


def computed_names(body: bytes) -> set[str]:
    """Return what a reader of the source can compute from a body and from what a customer is called."""
    words = ["", *KEY.values(), body.decode(), WORDS, *SHARED.values()]
    kinds = ("own", "user", "cache", "conversation", "body", "key")
    return {digest(kind, *parts) for kind in kinds for one in words for parts in ((one,), ("", one), (one, ""))}


@pytest.mark.parametrize("mark", [{}, KEY], ids=["unmarked", "key"])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_no_session_id_can_be_computed_from_the_request(path: str, mark: dict[str, str]) -> None:
    edge, body = Edge(), json.dumps(completion(WORDS, input=WORDS, **SHARED)).encode()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door_of(edge).app()), base_url=BASE) as client:
        asking = asyncio.ensure_future(client.post(path, content=body, headers=mark))
        await until(lambda: edge.asked)
        await answer_all(edge, asking)  # type: ignore[arg-type]
    assert edge.asked[0].session_id not in computed_names(body)


async def test_an_open_answer_and_its_conversation_cannot_be_taken_by_another_asker() -> None:
    """The other asker continues, cancels and erases with its own response id."""
    edge, bodies = Edge(), {"model": "replyline", "input": WORDS, "background": True}
    one, other = {"x-forwarded-for": "192.0.2.1"}, {"x-forwarded-for": "192.0.2.2"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door_of(edge).app()), base_url=BASE) as client:
        first = (await client.post("/responses", json=bodies, headers=one)).json()["id"]
        second = (await client.post("/responses", json=bodies, headers=other | RETRY | KEY)).json()["id"]
        mine, theirs = [asked.session_id for asked in edge.asked]
        assert (await client.post(f"/responses/{second}/cancel", headers=other)).json()["status"] == "cancelled"
        assert (await client.delete(f"/responses/{second}", headers=other)).status_code == 200
        assert (edge.cancelled, [each.session_id for each in edge.told_all]) == ([edge.asked[1].id], [theirs])
        for forged in (first.replace(mine, theirs), second.replace(theirs, mine), first[:-8] + "A" * 8):
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
                assert (await client.request(method, f"/responses/{forged}{path}", headers=other)).status_code == 404
            going_on = bodies | {"previous_response_id": forged}
            assert (await client.post("/responses", json=going_on, headers=other)).status_code == 404
        assert (await client.get(f"/responses/{first}", headers=one)).json()["status"] == "in_progress"
        assert (len(edge.asked), mine != theirs) == (2, True)


async def test_same_words_in_one_conversation_do_not_cost_more_each_time() -> None:
    class Counting(dict[Any, Any]):
        looked = 0

        def get(self, key: Any, default: Any = None) -> Any:
            self.looked += 1
            return super().get(key, default)

    edge, costs = Edge(), list[int]()
    edge.gateway.inflight._by_event = table = Counting()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door_of(edge).app()), base_url=BASE) as client:
        for number in range(20):
            before = table.looked
            body = completion("Hi", metadata={"session_id": "popular"})
            asking = asyncio.ensure_future(client.post("/chat/completions", json=body))
            await until(lambda number=number: len(edge.asked) > number)  # type: ignore[misc]
            costs.append(table.looked - before)
            await answer_all(edge, asking)  # type: ignore[arg-type]
    assert max(costs[1:]) == min(costs[1:])


@pytest.mark.parametrize("door", ["chat", "responses"])
async def test_two_customers_of_one_server_have_two_conversations(door: str) -> None:
    """A shop's server has one token and one address. A retry of its SDK gets no open answer if it matches two."""
    edge, shop = Edge(), tokens.bearer_of("shop")
    async with DOORS[door](edge, tokens.gate(), SHARED) as ask:
        asking = [asyncio.ensure_future(ask(shop, name, {})) for name in ("a", "b")]
        await until(lambda: len(edge.asked) == 2)
        asking.append(asyncio.ensure_future(ask(shop, "c", RETRY)))
        await until(lambda: len(edge.asked) == 3)
        assert await answer_all(edge, *asking) == [asked.id for asked in edge.asked]
    assert len({asked.session_id for asked in edge.asked}) == 3


@pytest.mark.parametrize("key", ["k" * 16, "2" * 16, "2"])
async def test_anothers_key_ends_no_open_answer(key: str) -> None:
    """Neither does another question under the same key: the second asker is refused, or answered by itself."""
    edge, one, other = Edge(), {"x-forwarded-for": "192.0.2.1"}, {"x-forwarded-for": "192.0.2.2"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=door_of(edge).app()), base_url=BASE) as client:
        first = asyncio.ensure_future(client.post("/chat/completions", json=completion(WORDS), headers=one | KEY))
        await until(lambda: edge.asked)
        body, headers = completion("Something else?"), other | {"idempotency-key": key}
        second = asyncio.ensure_future(client.post("/chat/completions", json=body, headers=headers))
        await until(lambda: len(edge.asked) == 2)
        reused = await client.post("/chat/completions", json=body, headers=one | KEY)
        assert (reused.status_code, reused.json()["error"]["code"]) == (409, "key_reused")
        got = await answer_all(edge, first, second)  # type: ignore[arg-type]
    assert [each.status_code for each in got] == [200, 200]  # type: ignore[attr-defined]


def _streamed(
    edge_door: Any, path: str, body: dict[str, Any]
) -> tuple["asyncio.Future[Any]", asyncio.Event, bytearray]:
    """Ask in the conversation `named` over a stream; return its task, the event that breaks it, and what it brought."""
    broken, came = asyncio.Event(), bytearray()
    sent = [{"type": "http.request", "body": json.dumps(body | {"stream": True}).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        await broken.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        came.extend(message.get("body", b""))

    scope = {"type": "http", "method": "POST", "path": f"/v1{path}", "query_string": b"", "root_path": ""}
    named = {"headers": [(b"replyline-session", b"named")], "client": ("192.0.2.1", 1), "http_version": "1.1"}
    return asyncio.ensure_future(edge_door.app()(scope | named, receive, send)), broken, came


@pytest.mark.parametrize(
    ("path", "body", "questions"),
    [("/responses", {"model": "replyline", "input": WORDS}, 1), ("/chat/completions", completion(WORDS), 2)],
)
async def test_words_repeated_in_a_named_conversation_get_a_stored_answer_whose_stream_broke(
    path: str, body: dict[str, Any], questions: int
) -> None:
    """A repeated chat completion is a new question: its first try is given up."""
    edge = Edge()
    door = door_of(edge)
    first, broken, _ = _streamed(door, path, body)
    await until(lambda: edge.asked)
    broken.set()
    await first
    again, _, came = _streamed(door, path, body)
    await until(lambda: len(edge.asked) == questions or b"response.created" in came)
    assert len(edge.asked) == questions
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    await door.http.exchanges.stop()
