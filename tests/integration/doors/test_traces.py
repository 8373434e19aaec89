"""A question leaves one trace, from the socket to the engine and back; a trace store that is away affects
nothing else.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from ops.stack.processes import free_port
from tests.integration.support import cuts
from tests.integration.support.cuts import ask_and_lose
from tests.support.servers.trace_store import StoredSpan, TraceStore
from tests.support.system import CURSOR_SECRET, Service, System, eventually
from tests.support.wire import Answer, Client

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WHOLE = {
    "response.create",
    "admit",
    "send",
    "wait",
    "process",
    "prepare",
    "queue",
    "chat fake",
    "prefill",
    "prefill chunk",
    "decode",
    "send chat.replies",
    "deliver",
}


STORE = TraceStore(free_port())
# One gateway keeps every trace, the other only those that its rules select.
pytestmark = pytest.mark.system(
    gateways=({"tracing__ratio": 1}, {"tracing__ratio": 0}),
    worker__fake_decode_ms_per_step=4,
    tracing__endpoint=STORE.endpoint,
    gateway__cursor_secret_file=CURSOR_SECRET,
    kv__enabled="false",
)


@pytest.fixture(scope="module")
def store() -> Iterator[TraceStore]:
    STORE.start()
    yield STORE
    STORE.stop()


def _short(name: str, system: System) -> str:
    name = name.replace(system.prefix, "")
    return name.removesuffix(" chat.requests.short")


async def _stored(store: TraceStore, system: System, trace_id: str, *, wanted: set[str]) -> dict[str, StoredSpan]:
    """Return the spans by name, once these are among them: gateway and worker send theirs separately."""

    def found() -> dict[str, StoredSpan]:
        return {_short(name, system): span for name, span in store.trace(trace_id).items()}

    await eventually(lambda: found().keys() >= wanted)
    return found()


def _check_tree(spans: dict[str, StoredSpan], client_span: str) -> None:
    by_id = {span.span_id: span for span in spans.values()}
    root = spans["response.create"]
    assert root.parent_id == client_span
    for span in spans.values():
        if span is not root:
            parent = by_id[span.parent_id]
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns, span.name


async def _ask(gateway: Service, **fields: object) -> Answer:
    async with Client.connect(gateway.ws) as client:
        return await client.ask("Where is my parrot Marmaduke?", **fields)


async def test_one_question_leaves_one_complete_trace(
    system: System, store: TraceStore, gateways: list[Service]
) -> None:
    """The client's trace is continued; gateway and worker each have their own spans; no customer text is included."""
    every, _ = gateways
    answer = await _ask(every, max_output_tokens=8, traceparent=TRACEPARENT)
    spans = await _stored(store, system, TRACEPARENT[3:35], wanted=WHOLE)
    assert spans.keys() == WHOLE
    _check_tree(spans, TRACEPARENT[36:52])
    workers = {name for name, span in spans.items() if span.service == "replyline-worker"}
    assert workers == WHOLE - {"response.create", "admit", "send", "wait", "deliver"}
    assert spans["process"].links == (spans["send"].span_id,)
    assert spans["chat fake"].attributes["gen_ai.usage.output_tokens"] == 8
    assert spans["response.create"].attributes["replyline.kept"] == "sampled"
    (logged,) = every.logged("answered", request_id=answer.response["id"])
    assert logged["trace_id"] == TRACEPARENT[3:35]
    for body in store.bodies:
        assert b"Marmaduke" not in body
        assert answer.text.encode() not in body


async def test_a_missed_deadline_is_kept_at_ratio_zero_with_the_workers_spans(
    system: System, store: TraceStore, gateways: list[Service]
) -> None:
    """A successful answer is not kept."""
    _, few = gateways
    well = "00-11111111111111111111111111111111-b7ad6b7169203331-01"
    missed = "00-22222222222222222222222222222222-b7ad6b7169203331-01"
    assert (await _ask(few, max_output_tokens=4, traceparent=well)).outcome[0] == "incomplete"
    answer = await _ask(few, max_output_tokens=2_000, deadline_ms=3_000, traceparent=missed)
    assert answer.outcome == ("incomplete", "deadline", "model")
    spans = await _stored(store, system, missed[3:35], wanted={"response.create", "process", "queue", "decode"})
    assert spans["response.create"].attributes["replyline.kept"] == "missed"
    assert spans["response.create"].error == "deadline"
    _check_tree(spans, missed[36:52])
    assert not store.trace(well[3:35])


async def test_an_answer_resumed_at_another_gateway_has_its_trace_there(
    system: System, store: TraceStore, gateways: list[Service]
) -> None:
    """Its own gateway is killed during the answer without reporting; the client's trace is continued."""
    every, _ = gateways
    parent = "00-66666666666666666666666666666666-b7ad6b7169203331-01"
    doomed = await system.gateway(tracing__ratio=1, gateway__reply_partition=2).ready()
    cut = await ask_and_lose(doomed, 3, traceparent=parent)
    doomed.kill()
    assert (await cut.resume(every)).outcome == cuts.WHOLE
    wanted = {"response.resume", "process", "prefill", "decode", "send chat.replies"}
    spans = await _stored(store, system, parent[3:35], wanted=wanted)
    assert not {"response.create", "send", "admit", "wait"} & spans.keys()
    root, process = spans["response.resume"], spans["process"]
    assert root.parent_id not in {span.span_id for span in spans.values()}, "it ended with its gateway"
    assert process.parent_id == root.span_id
    assert process.links
    (logged,) = every.logged("answered", trace_id=parent[3:35])
    assert logged["adopted"] is True


async def test_another_service_gets_the_workers_times(system: System, gateways: list[Service]) -> None:
    """They come with the end, so that the service can build the trace; the request came through the router."""
    request = {
        "type": "chat.request",
        "id": "r-traced",
        "session_id": "s-traced",
        "input": "Where is it?",
        "max_output_tokens": 2,
        "traceparent": f"00-{3:032x}-b7ad6b7169203331-01",
    }
    json_type = [("content-type", b"application/json")]

    def ends(record: Any) -> bool:
        event = msgpack.unpackb(record.value)
        return bool(event["type"] == "chat.done" and event["request_id"] == "r-traced")

    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests", json.dumps(request).encode(), headers=json_type)
        done = msgpack.unpackb((await tap.until(ends)).value)
    assert done["times"]["started_unix_ms"] <= done["times"]["ended_unix_ms"]


async def test_a_store_outage_costs_one_log_line_and_no_answer(store: TraceStore, gateways: list[Service]) -> None:
    every, _ = gateways
    store.stop()
    for number in range(2):
        answer = await _ask(every, max_output_tokens=4)
        assert answer.outcome == ("incomplete", "max_output_tokens", "model")

        async def lost(number: int = number) -> bool:
            return await every.metric("replyline_traces_dropped_total", why="store") > number

        await eventually(lost)
    await eventually(lambda: every.logged("unavailable", what="trace store"))
    assert len(every.logged("unavailable", what="trace store")) == 1
    assert await every.status_of("/ready") == 200
    store.start()
    await _ask(every, max_output_tokens=4)
    await eventually(lambda: every.logged("available", what="trace store"))
    assert not every.logged("raw")
