"""The frames of `WebSocketChatTransport`, over a fake socket."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.doors.ai_sdk import sockets
from tests.support.fakes.ai_sdk_doors import ChatPage, FakeCursors, chat, door_of
from tests.support.fakes.gateways import Edge, delta, until
from tests.support.fakes.openai_doors import answer


@pytest.fixture
def edge() -> Edge:
    return Edge()


@pytest_asyncio.fixture
async def page(edge: Edge) -> AsyncIterator[ChatPage]:
    page = ChatPage(door_of(edge, FakeCursors()))
    yield page
    await page.leave()


async def test_two_answers_are_streamed_over_one_socket(page: ChatPage, edge: Edge) -> None:
    for name in ("r1", "r2"):
        page.send("send", name, **chat(f"{name}?", id=name))
    await until(lambda: len(edge.asked) == 2)
    for asked in edge.asked:
        await answer(edge, "Ada.", asked=asked)
    await until(lambda: [frame["type"] for frame in page.told].count("end") == 2)
    assert page.of("r1") == page.of("r2")
    assert page.of("r1")[:3] == ["start", "start", "start-step"]
    assert page.of("r1")[-2:] == ["finish", "end"]


async def test_a_lost_sockets_answer_is_resumed_and_then_stopped(edge: Edge) -> None:
    door = door_of(edge, FakeCursors())
    lost, page = ChatPage(door), ChatPage(door)
    lost.send("send", "r1", **chat("Who?"))
    await until(lambda: "start-step" in lost.of("r1"))
    await lost.leave()
    page.send("resume", "r2", id="chat-1")
    await until(lambda: "start" in page.of("r2"))
    edge.receive_replies([delta(edge.asked[0].id, "Ada", session_id="chat-1")])
    await until(lambda: "text-delta" in page.of("r2"))
    page.send("abort", "r2")
    await page.leave()
    await until(lambda: edge.cancelled == [edge.asked[0].id])
    last = ChatPage(door)
    last.send("resume", "r3", id="chat-1")
    await until(lambda: last.of("r3") == ["no-active"])
    await last.leave()


async def test_a_replaced_resumption_stops_nothing(page: ChatPage, edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """`useChat` does this in React's strict mode."""
    monkeypatch.setattr(sockets, "_REPLACED_S", 0.05)
    page.send("send", "r1", **chat("Who?"))
    await until(lambda: "start-step" in page.of("r1"))
    page.send("resume", "r2", id="chat-1")
    await until(lambda: "start" in page.of("r2"))
    page.send("abort", "r2")
    page.send("resume", "r3", id="chat-1")
    await until(lambda: "start" in page.of("r3"))
    await asyncio.sleep(0.1)
    await answer(edge, "Ada.")
    await until(lambda: "end" in page.of("r3"))
    assert edge.cancelled == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_a_binary_frame_of_json_is_read(page: ChatPage, edge: Edge, encoding: str) -> None:
    """As at the other WebSocket."""
    page.send_bytes(json.dumps({"type": "send", "requestId": "r1", **chat("Who?")}).encode(encoding))
    await until(lambda: "start-step" in page.of("r1"))
    assert [asked.input for asked in edge.asked] == ["Who?"]


async def test_an_aborted_question_is_cancelled(page: ChatPage, edge: Edge) -> None:
    page.send("send", "r1", **chat("Who?"))
    await until(lambda: "start-step" in page.of("r1"))
    page.send("abort", "r1")
    page.send("abort", "unknown")
    await until(lambda: edge.cancelled == [edge.asked[0].id])


async def test_an_unanswerable_request_ends_alone(page: ChatPage) -> None:
    page.send("send", "r1", **chat("Hi", "Hello."))
    await until(lambda: page.told)
    assert page.told == [{"type": "error", "requestId": "r1", "errorText": page.told[0]["errorText"]}]
    for number in range(9):
        page.send("send", f"q{number}", **chat(f"{number}?", id=f"c{number}"))
    await until(lambda: page.told[1:])
    assert page.told[1]["errorText"] == "at most 4 requests may run at the same time"


async def test_a_page_that_floods_is_closed(page: ChatPage) -> None:
    for number in range(65):
        page.send("resume", f"r{number}", id="c")
    await page.served
    assert page.closed == 1008


@pytest.mark.parametrize(("origin", "closed"), [("https://shop.example", None), ("https://evil.example", 1000)])
async def test_a_page_of_another_origin_is_refused(edge: Edge, origin: str, closed: int | None) -> None:
    page = ChatPage(door_of(edge, FakeCursors(), allowed_origins=("https://shop.example",)), origin=origin)
    page.send("resume", "r1", id="c")
    await until(lambda: page.told or page.closed is not None)
    assert page.closed == closed
    await page.leave()


async def test_a_page_that_asks_nothing_is_closed(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_IDLE_S", 0.05)
    page = ChatPage(door_of(edge, FakeCursors()))
    await page.served
    assert page.closed == 1000


async def test_a_page_that_does_not_read_is_dropped_and_its_answer_continues(edge: Edge) -> None:
    page = ChatPage(door_of(edge, FakeCursors(), slow_consumer_s=0.05))
    page.send("send", "r1", **chat("Who?"))
    await until(lambda: "start-step" in page.of("r1"))
    page.reads.clear()
    edge.receive_replies([delta(edge.asked[0].id, "Ada", session_id="chat-1")])
    await page.served
    assert (page.of("r1")[-1], edge.cancelled) == ("start-step", [])


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"type": "ping"}, "unknown frame type 'ping'; known: abort, resume, send"),
        ({}, "unknown frame type 'None'; known: abort, resume, send"),
        ({"type": "send", "id": "c", "messages": 7}, "send: `messages[0]`: expected `object`, got `int`"),
        ({"type": "resume"}, "resume: object missing required field `id`"),
    ],
)
async def test_a_malformed_frame_ends_only_the_request_that_it_names(
    page: ChatPage, edge: Edge, frame: dict[str, object], said: str
) -> None:
    page.send("send", "r1", **chat("Who?"))
    await until(lambda: "start-step" in page.of("r1"))
    page.send_text(json.dumps({"requestId": "r2", **frame}))
    await until(lambda: page.of("r2"))
    assert next(each for each in page.told if each["requestId"] == "r2")["errorText"].lower() == said.lower()
    await answer(edge, "Ada.")
    await until(lambda: "end" in page.of("r1"))
    assert page.closed is None


FRAMES = st.dictionaries(
    st.sampled_from(["type", "requestId", "id", "messages", "headers", "trigger"]),
    st.sampled_from(["send", "resume", "abort"])
    | st.none()
    | st.integers()
    | st.text(max_size=9)
    | st.lists(st.none()),
)


@settings(max_examples=80, deadline=None)
@given(text=FRAMES.map(json.dumps) | st.text(max_size=30) | st.just("[" * 5_000))
async def test_after_any_frame_the_next_page_is_served(text: str) -> None:
    edge = Edge(kafka_is_away=True)
    door = door_of(edge, FakeCursors())
    page, other = ChatPage(door), ChatPage(door)
    page.send_text(text)
    other.send("send", "r1", **chat("How do I return an item?"))
    await until(lambda: "end" in other.of("r1"))
    assert page.closed in {None, 1008}
    assert all(frame["type"] in {"error", "no-active"} for frame in page.told)
    await asyncio.gather(page.leave(), other.leave())


@pytest.mark.parametrize("frame", ["abort", "resume"])
async def test_frames_that_cost_nothing_are_counted(edge: Edge, frame: str) -> None:
    page = ChatPage(door_of(edge, FakeCursors(), messages_per_minute=20))
    for number in range(30):
        page.send(frame, f"r{number}", id=f"chat-{number}")
        await asyncio.sleep(0)
    await until(lambda: page.closed is not None)
    assert page.closed == 1008
    await page.leave()


async def test_a_page_that_only_aborts_is_idle(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_IDLE_S", 0.05)
    page = ChatPage(door_of(edge, FakeCursors()))

    async def abort() -> None:
        while True:
            page.send("abort", "r1")
            await asyncio.sleep(0.01)

    aborting = asyncio.create_task(abort())
    await until(lambda: page.closed == 1000)
    aborting.cancel()
    await page.leave()


async def test_a_resumption_of_nothing_is_charged(page: ChatPage, edge: Edge) -> None:
    page.send("resume", "r1", id="none")
    await until(lambda: page.of("r1") == ["no-active"])
    assert [kind for kind, _ in edge.quotas.here] == ["resume"]
    edge.quotas.used_up = {"resume"}
    page.send("resume", "r2", id="none")
    await until(lambda: page.of("r2") == ["error"])
