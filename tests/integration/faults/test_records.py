"""What other services write to Kafka is answered; what nobody can read is put aside, and the next one is served."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import msgpack
import pytest
import pytest_asyncio

from tests.support.system import MakeSystem, Service, System, Tap, eventually

QUESTION = "How do I return an item?"


@pytest_asyncio.fixture(scope="module")
async def system(make_system: MakeSystem) -> System:
    return await make_system(worker__fake_decode_ms_per_step=2, promise__first_token_ms=8_000)


@pytest.fixture(scope="module", autouse=True)
def gateway(services: tuple[Service, Service]) -> Service:
    """It routes what comes to the inbox."""
    return services[1]


def request(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "chat.request",
        "id": name,
        "session_id": f"session-of-{name}",
        "input": QUESTION,
        "max_output_tokens": 5,
        **fields,
    }


async def terminal(tap: Tap, name: str) -> dict[str, Any]:
    """The terminal event of that request; its deltas say the same text before it."""

    def ends(record: Any) -> bool:
        event = msgpack.unpackb(record.value)
        return bool(event["type"] == "chat.done" and event["request_id"] == name)

    done: dict[str, Any] = msgpack.unpackb((await tap.until(ends)).value)
    said = [msgpack.unpackb(record.value) for record in tap.records]
    deltas = [event for event in said if event["type"] == "chat.delta" and event["request_id"] == name]
    text = ""
    for event in deltas:
        assert event["offset"] == len(text)
        text += event["delta"]
    assert text == done["output_text"] or done["source"] != "model"
    return done


async def dead(tap: Tap, topic: str, metadata: Any) -> tuple[Any, dict[str, str]]:
    """The dead letter of that record, and its headers."""
    origin = f"{topic}/{metadata.partition}/{metadata.offset}".encode()
    record = await tap.until(lambda record: ("dead-letter-origin", origin) in record.headers)
    return record, {name: value.decode() for name, value in record.headers}


BAD: dict[str, tuple[bytes | None, dict[str, str], str]] = {
    "nonsense": (b"\xc1\xff", {}, "invalid_record"),
    "nothing": (None, {}, "invalid_record"),
    "empty": (b"", {}, "invalid_record"),
    "another type": (msgpack.packb({"type": "chat.reply", "id": "x"}), {}, "invalid_record"),
    "no input": (msgpack.packb({"type": "chat.request", "id": "x", "session_id": "s"}), {}, "invalid_record"),
    "a wrong field": (msgpack.packb(request("x", temperature="hot")), {}, "invalid_record"),
    "a long id": (msgpack.packb(request("x" * 65)), {}, "invalid_record"),
    "JSON without saying so": (json.dumps(request("x")).encode(), {}, "invalid_record"),
    "not the JSON it says": (msgpack.packb(request("x")), {"content-type": "application/json"}, "invalid_record"),
    "broken JSON": (b'{"type":"chat.request"', {"content-type": "application/json"}, "invalid_record"),
    "deep nesting": (b"\x81\xa1x" + b"\x91" * 50_000, {}, "invalid_record"),
    "somebody else's topic": (
        msgpack.packb(request("x", reply_topic="payments")),
        {},
        "reply_topic_not_allowed",
    ),
    "too long": (msgpack.packb(request("x", input="y" * 200_000)), {}, "input_too_long"),
}


@pytest.mark.parametrize("topic", ["chat.requests.short", "chat.requests"])
@pytest.mark.parametrize("what", BAD)
async def test_what_cannot_be_served_is_put_aside_and_the_next_one_is_served(
    system: System, unique: Callable[[str], str], what: str, topic: str
) -> None:
    """With its reason, where it came from, its key and its bytes; in the very partition, the next is answered."""
    value, headers, reason = BAD[what]
    name = unique("next")
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        given = await system.produce(
            topic, value, key=b"its-key", partition=1, headers=[(key, text.encode()) for key, text in headers.items()]
        )
        await system.produce(topic, msgpack.packb(request(name)), partition=1)
        done = await terminal(replies, name)
        record, told = await dead(letters, given.topic, given)
    assert len(done["output_text"]) == 5
    assert (record.value or None, record.key) == (value or None, b"its-key")
    assert told["dead-letter-reason"] == reason
    assert told["dead-letter-detail"]
    assert "Traceback" not in told["dead-letter-detail"]


async def test_a_record_without_key_and_value_is_put_aside(system: System, unique: Callable[[str], str]) -> None:
    """Other clients than aiokafka can write such a one."""
    name, topic = unique("next"), system.topic("chat.requests.short")
    delivered: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": system.bootstrap})
    producer.produce(topic, partition=2, on_delivery=lambda _, message: delivered.append(message))
    await asyncio.to_thread(producer.flush, 10)
    (message,) = delivered
    origin = f"{topic}/2/{message.offset()}".encode()
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        await system.produce("chat.requests.short", msgpack.packb(request(name)), partition=2)
        await terminal(replies, name)
        letter = await letters.until(lambda record: ("dead-letter-origin", origin) in record.headers)
    assert dict(letter.headers)["dead-letter-reason"] == b"invalid_record"


async def test_an_unknown_content_type_is_put_aside(system: System, unique: Callable[[str], str]) -> None:
    """A content type that is neither MessagePack nor JSON says that the value is something else."""
    headers = [("content-type", b"application/avro")]
    name = unique("avro")
    async with system.reading("chat.dead-letters") as letters:
        given = await system.produce("chat.requests.short", msgpack.packb(request(name)), headers=headers)
        _, told = await dead(letters, given.topic, given)
    assert told["dead-letter-reason"] == "invalid_record"
    assert "application/avro" in told["dead-letter-detail"]


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short", "chat.requests.long"])
async def test_another_services_request_is_answered_on_its_own_topic(
    system: System, unique: Callable[[str], str], topic: str
) -> None:
    name = unique("own")
    async with system.reading("chat.replies.external") as tap:
        value = request(name, reply_topic=system.topic("chat.replies.external"))
        await system.produce(topic, msgpack.packb(value), key=b"demo/own")
        done = await terminal(tap, name)
    assert (done["status"], done["reason"], done["source"]) == ("incomplete", "max_output_tokens", "model")
    assert len(done["output_text"]) == 5
    assert done["session_id"] == f"session-of-{name}"
    assert done["usage"]["output_tokens"] == 5


async def test_three_fields_are_all_that_is_required(system: System, unique: Callable[[str], str]) -> None:
    """The rest has defaults; the answer goes to chat.replies.external."""
    name = unique("bare")
    value = {"type": "chat.request", "id": name, "session_id": "s", "input": QUESTION}
    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests", msgpack.packb(value))
        done = await terminal(tap, name)
    assert len(done["output_text"]) == 160
    assert any("return" in entry["question"].lower() for entry in done["grounding"])


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
async def test_json_is_accepted_where_the_header_says_so(
    system: System, unique: Callable[[str], str], topic: str, content_type: str
) -> None:
    name = unique("json")
    headers = [("content-type", content_type.encode())]
    async with system.reading("chat.replies.external") as tap:
        await system.produce(topic, json.dumps(request(name)).encode(), headers=headers)
        assert len((await terminal(tap, name))["output_text"]) == 5


async def test_a_record_in_the_wrong_bucket_is_served_and_counted(
    system: System, worker: Service, unique: Callable[[str], str]
) -> None:
    name = unique("wrong")
    before = await worker.metric("replyline_worker_odd_requests_total", what="bucket")
    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests.long", msgpack.packb(request(name)))
        await terminal(tap, name)
    assert await worker.metric("replyline_worker_odd_requests_total", what="bucket") == before + 1


async def test_the_inbox_is_routed_by_length(system: System, gateway: Service, unique: Callable[[str], str]) -> None:
    """Each copy carries the headers that a worker reads, and is keyed by tenant and session."""
    for length, bucket in ((20, "short"), (200, "medium"), (500, "long")):
        name = unique("routed")
        before = await gateway.metric("replyline_gateway_requests_total", bucket=bucket)
        async with (
            system.reading(f"chat.requests.{bucket}") as copies,
            system.reading("chat.replies.external") as replies,
        ):
            await system.produce("chat.requests", msgpack.packb(request(name, input="x" * length)), key=b"any")
            copy = await copies.until(lambda record: ("ce_id", name.encode()) in record.headers)  # noqa: B023
            await terminal(replies, name)
        assert copy.key == f"demo/session-of-{name}".encode()
        assert int(dict(copy.headers)["deadline-unix-ms"]) > time.time() * 1_000
        await eventually(lambda: _has_routed(gateway, bucket, before + 1))  # noqa: B023


async def _has_routed(gateway: Service, bucket: str, count: float) -> bool:
    return await gateway.metric("replyline_gateway_requests_total", bucket=bucket) == count


async def test_a_record_whose_deadline_is_past_is_answered_unread(
    system: System, worker: Service, unique: Callable[[str], str]
) -> None:
    """By its headers alone: the value, which nobody could read, makes no dead letter."""
    name = unique("late")
    letters = await worker.metric("replyline_dead_letters_total")
    headers = [
        ("ce_id", name.encode()),
        ("deadline-unix-ms", b"1700000000000"),
        ("reply-topic", system.topic("chat.replies.external").encode()),
    ]
    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests.short", b"\xc1 unreadable", key=b"demo/someone", headers=headers)
        done = await terminal(tap, name)
    assert (done["status"], done["reason"], done["output_text"]) == ("incomplete", "deadline", "")
    assert done["session_id"] == "someone"
    assert await worker.metric("replyline_dead_letters_total") == letters


async def test_another_services_late_request_is_answered_by_the_faq(
    system: System, worker: Service, unique: Callable[[str], str]
) -> None:
    """The worker hangs past the soft deadline; no gateway stands by, so the worker itself answers from the FAQ."""
    name = unique("faq")
    now = int(time.time() * 1_000)
    async with system.reading("chat.replies.external") as tap:
        worker.pause()
        try:
            value = request(name, first_token_unix_ms=now + 200, deadline_unix_ms=now + 60_000)
            await system.produce("chat.requests.short", msgpack.packb(value))
            await asyncio.sleep(max(0.0, now / 1_000 + 0.25 - time.time()))  # until its time is up
        finally:
            worker.resume()
        done = await terminal(tap, name)
    assert (done["status"], done["reason"], done["source"]) == ("completed", "stop", "faq")
    assert done["output_text"] == done["grounding"][0]["answer"]


async def test_a_cancel_from_another_service_takes_effect(system: System, unique: Callable[[str], str]) -> None:
    name = unique("cancelled")
    async with system.reading("chat.replies.external") as tap:
        key = f"demo/{name}".encode()
        await system.produce("chat.requests.short", msgpack.packb(request(name, max_output_tokens=500)), key=key)
        await tap.until(lambda record: msgpack.unpackb(record.value).get("request_id") == name)
        await system.produce("chat.cancels", b"\xc1 nonsense first", key=key)
        await system.produce("chat.cancels", msgpack.packb({"type": "chat.cancel", "request_id": name}), key=key)
        done = await terminal(tap, name)
    assert (done["status"], done["reason"]) == ("cancelled", "client")


async def test_a_request_produced_twice_is_answered_once_while_it_is_computed(
    system: System, worker: Service, unique: Callable[[str], str]
) -> None:
    name = unique("twice")
    served = await worker.metric("infer_total")
    value = msgpack.packb(request(name, max_output_tokens=200))
    async with system.reading("chat.replies.external") as tap:
        for _ in range(2):
            await system.produce("chat.requests.short", value, key=b"demo/twice")
        await terminal(tap, name)
    assert await worker.metric("infer_total") == served + 1


async def test_another_request_under_an_id_that_is_being_answered_is_put_aside(
    system: System, unique: Callable[[str], str]
) -> None:
    """The first is answered; whoever used its id for another question finds that among the dead letters."""
    name = unique("taken")
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        await system.produce("chat.requests.short", msgpack.packb(request(name, max_output_tokens=500)))
        await replies.until(lambda record: msgpack.unpackb(record.value).get("request_id") == name)
        other = msgpack.packb(request(name, input="Something else?"))
        given = await system.produce("chat.requests.short", other)
        record, told = await dead(letters, given.topic, given)
        await terminal(replies, name)
    assert (told["dead-letter-reason"], record.value) == ("invalid_field", other)


async def test_a_reply_that_is_none_harms_no_gateway(system: System, gateway: Service) -> None:
    """Counted and skipped: what cannot be decoded, and what nobody asked for."""
    dropped = await gateway.metric("replyline_gateway_replies_dropped_total")
    for value in (b"\xc1", b"", msgpack.packb({"type": "chat.delta"})):
        await system.produce("chat.replies", value, partition=0)
    stray = {
        "type": "chat.delta",
        "request_id": "resp_unknown",
        "session_id": "s",
        "attempt": 1,
        "seq": 0,
        "offset": 0,
        "delta": "x",
    }
    await system.produce("chat.replies", msgpack.packb(stray), partition=0)

    async def all_dropped() -> bool:
        return await gateway.metric("replyline_gateway_replies_dropped_total") == dropped + 4

    await eventually(all_dropped)
