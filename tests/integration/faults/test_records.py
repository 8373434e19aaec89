"""Records that other services write to Kafka are answered, with one documented outcome for an invalid deadline
(docs/deadlines.md). Undecodable records are tested in test_dead_letters.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import msgpack
import pytest
from aiokafka import AIOKafkaProducer

from tests.support.hostile.poison_records import packed, written
from tests.support.shared_system import STANDARD
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.tap import Tap

pytestmark = STANDARD

QUESTION = "How do I return an item?"
MINUTE_MS = 60_000


def request(name: str, **fields: Any) -> bytes:
    return packed(**{"id": name, "session_id": f"session-of-{name}", "max_output_tokens": 5, **fields})


async def terminal(tap: Tap, name: str) -> dict[str, Any]:
    """Return the terminal event of that request; its deltas have the same text."""

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
    """Return the dead letter of that record, and its headers."""
    origin = f"{topic}/{metadata.partition}/{metadata.offset}".encode()
    record = await tap.until(lambda record: ("dead-letter-origin", origin) in record.headers)
    return record, {name: value.decode() for name, value in record.headers}


async def test_a_record_without_key_and_value_becomes_a_dead_letter(
    system: System, unique: Callable[[str], str]
) -> None:
    """Other clients than aiokafka can write one."""
    name, topic = unique("next"), system.topic("chat.requests.short")
    delivered: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": system.bootstrap})
    producer.produce(topic, partition=2, on_delivery=lambda _, message: delivered.append(message))
    await asyncio.to_thread(producer.flush, 10)
    (message,) = delivered
    origin = f"{topic}/2/{message.offset()}".encode()
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        await system.produce("chat.requests.short", request(name), partition=2)
        await terminal(replies, name)
        letter = await letters.until(lambda record: ("dead-letter-origin", origin) in record.headers)
    assert dict(letter.headers)["dead-letter-reason"] == b"invalid_record"


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short", "chat.requests.long"])
async def test_another_services_request_is_answered_on_its_own_topic(
    system: System, unique: Callable[[str], str], topic: str
) -> None:
    name = unique("own")
    async with system.reading("chat.replies.external") as tap:
        value = request(name, reply_topic=system.topic("chat.replies.external"))
        await system.produce(topic, value, key=b"demo/own")
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
@pytest.mark.parametrize("headers", [[], [("Content-Type", b'"application/json; charset=utf-8"')]])
async def test_json_is_accepted_with_a_header_and_without(
    system: System, unique: Callable[[str], str], topic: str, headers: list[tuple[str, bytes]]
) -> None:
    name = unique("json")
    async with system.reading("chat.replies.external") as tap:
        await system.produce(topic, written(id=name, max_output_tokens=5), headers=headers)
        assert len((await terminal(tap, name))["output_text"]) == 5


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
async def test_an_unreadable_request_gets_a_terminal_event(
    system: System, unique: Callable[[str], str], topic: str
) -> None:
    name = unique("unclear")
    async with system.reading("chat.replies.external") as tap:
        await system.produce(topic, written(id=name, temperature=9))
        done = await terminal(tap, name)
    assert (done["status"], done["error"]["code"]) == ("failed", "invalid_record")


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
async def test_only_committed_transactions_are_answered_and_their_markers_leave_no_lag(
    system: System, unique: Callable[[str], str], topic: str
) -> None:
    aborted, kept = unique("aborted"), unique("kept")
    producer = AIOKafkaProducer(bootstrap_servers=system.bootstrap, transactional_id=unique("crm"))
    async with system.reading("chat.replies.external") as tap, producer:
        for name, ends in ((aborted, producer.abort_transaction), (kept, producer.commit_transaction)):
            await producer.begin_transaction()
            await producer.send_and_wait(system.topic(topic), request(name), partition=2)
            await ends()
        await terminal(tap, kept)
        replies = [msgpack.unpackb(record.value) for record in tap.records]
    assert not [reply for reply in replies if reply["request_id"] == aborted]

    async def has_no_lag() -> bool:
        group = "replyline-router" if topic == "chat.requests" else "replyline-workers"
        return (await system.committed(group)).get((topic, 2)) == await system.log_end(topic, 2)

    await eventually(has_no_lag)


async def test_a_record_in_the_wrong_bucket_is_served_and_counted(
    system: System, worker: Service, unique: Callable[[str], str]
) -> None:
    name = unique("wrong")
    before = await worker.metric("replyline_worker_odd_requests_total", what="bucket")
    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests.long", request(name))
        await terminal(tap, name)
    assert await worker.metric("replyline_worker_odd_requests_total", what="bucket") == before + 1


async def test_the_inbox_is_routed_by_length(
    system: System, gateways: list[Service], unique: Callable[[str], str]
) -> None:
    """Each copy has the headers that a worker reads, and is keyed by tenant and session."""
    for length, bucket in ((20, "short"), (200, "medium"), (500, "long")):
        name = unique("routed")
        before = await _routed(gateways, bucket)
        async with (
            system.reading(f"chat.requests.{bucket}") as copies,
            system.reading("chat.replies.external") as replies,
        ):
            await system.produce("chat.requests", request(name, input="x" * length), key=b"any")
            copy = await copies.until(lambda record: ("ce_id", name.encode()) in record.headers)  # noqa: B023
            await terminal(replies, name)
        assert copy.key == f"demo/session-of-{name}".encode()
        assert int(dict(copy.headers)["deadline-unix-ms"]) > time.time() * 1_000

        async def is_counted(bucket: str = bucket, count: float = before + 1) -> bool:
            return await _routed(gateways, bucket) == count

        await eventually(is_counted)


async def _routed(gateways: list[Service], bucket: str) -> float:
    return sum([await gateway.metric("replyline_gateway_requests_total", bucket=bucket) for gateway in gateways])


async def test_a_record_with_an_expired_deadline_is_answered_without_reading_its_value(
    system: System, worker: Service, unique: Callable[[str], str]
) -> None:
    """By its headers alone: its undecodable value makes no dead letter."""
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
    """The worker hangs past the soft deadline; no gateway is involved, so the worker itself answers from the FAQ."""
    name = unique("faq")
    now = int(time.time() * 1_000)
    async with system.reading("chat.replies.external") as tap:
        worker.pause()
        try:
            value = request(name, first_token_unix_ms=now + 200, deadline_unix_ms=now + 60_000)
            await system.produce("chat.requests.short", value)
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
        await system.produce("chat.requests.short", request(name, max_output_tokens=2_000), key=key)
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
    value = request(name, max_output_tokens=600)
    async with system.reading("chat.replies.external") as tap:
        await asyncio.gather(*(system.produce("chat.requests.short", value, key=b"demo/twice") for _ in range(2)))
        await terminal(tap, name)
    assert await worker.metric("infer_total") == served + 1


async def test_another_request_under_an_id_in_flight_becomes_a_dead_letter(
    system: System, unique: Callable[[str], str]
) -> None:
    """The first is answered; the sender that reused its id finds its question among the dead letters."""
    name = unique("taken")
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        await system.produce("chat.requests.short", request(name, max_output_tokens=1_000))
        await replies.until(lambda record: msgpack.unpackb(record.value).get("request_id") == name)
        other = request(name, input="Something else?")
        given = await system.produce("chat.requests.short", other)
        record, told = await dead(letters, given.topic, given)
        await terminal(replies, name)
    assert (told["dead-letter-reason"], record.value) == ("invalid_field", other)


async def test_an_invalid_reply_harms_no_gateway(system: System, gateway: Service) -> None:
    """Undecodable and unrequested replies are counted and skipped."""
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


# --- invalid deadlines


def now_ms() -> int:
    return int(time.time() * 1_000)


PAST: dict[str, Callable[[int], dict[str, int]]] = {
    "a duration where a time belongs": lambda _: {"deadline_unix_ms": 15_000},
    "a deadline": lambda now: {"deadline_unix_ms": now - 5 * MINUTE_MS},
    "a first token's deadline": lambda now: {"first_token_unix_ms": now - 5 * MINUTE_MS},
    "a clock that is behind, or a request that has waited": lambda now: {"created_unix_ms": now - 5 * MINUTE_MS},
}


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
@pytest.mark.parametrize("what", PAST)
async def test_an_expired_deadline_is_answered_immediately_without_the_engine(
    system: System, worker: Service, unique: Callable[[str], str], what: str, topic: str
) -> None:
    """The FAQ answers; it never becomes the most urgent request."""
    name = unique("past")
    before = await worker.metric("replyline_worker_tokens_total", kind="prompt")
    async with system.reading("chat.replies.external") as tap:
        await system.produce(topic, request(name, **PAST[what](now_ms())))
        done = await terminal(tap, name)
    assert (done["status"], done["reason"]) in {("completed", "stop"), ("incomplete", "deadline")}
    assert done["source"] == "faq" or done["output_text"] == ""
    assert done["usage"].get("output_tokens", 0) == 0
    assert await worker.metric("replyline_worker_tokens_total", kind="prompt") == before


FAR: dict[str, Callable[[int], dict[str, int]]] = {
    "absurdly": lambda _: {"deadline_unix_ms": 2**50},
    "a deadline in microseconds": lambda now: {"deadline_unix_ms": now * 1_000},
    "a clock that is ahead": lambda now: {
        "created_unix_ms": now + 5 * MINUTE_MS,
        "deadline_unix_ms": now + 6 * MINUTE_MS,
    },
    "a creation in microseconds": lambda now: {"created_unix_ms": now * 1_000},
}


@pytest.mark.parametrize("what", FAR)
async def test_a_deadline_too_far_ahead_is_reduced_and_served(
    system: System, unique: Callable[[str], str], what: str
) -> None:
    name = unique("far")
    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests.short", request(name, **FAR[what](now_ms())))
        done = await terminal(tap, name)
    assert (done["source"], len(done["output_text"])) == ("model", 5)


async def test_the_earlier_of_header_and_value_counts(system: System, unique: Callable[[str], str]) -> None:
    past, future = now_ms() - MINUTE_MS, now_ms() + MINUTE_MS
    async with system.reading("chat.replies.external") as tap:
        for header, value in ((past, future), (future, past)):
            name = unique("two")
            headers = [("deadline-unix-ms", str(header).encode())]
            await system.produce("chat.requests.short", request(name, deadline_unix_ms=value), headers=headers)
            assert (await terminal(tap, name))["source"] == "faq"


async def test_a_clock_that_is_ahead_is_logged_once_a_minute_and_shortens_no_deadline(
    new_system: MakeSystem, unique: Callable[[str], str]
) -> None:
    """The line names the remedy and contains no text of the message."""
    system = await new_system()
    worker = await system.worker(worker__buckets="medium").ready()
    created = now_ms() + 5 * MINUTE_MS
    async with system.reading("chat.replies.external") as tap:
        for _ in range(3):
            name = unique("ahead")
            value = request(name, created_unix_ms=created, deadline_unix_ms=created + 10_000)
            await system.produce("chat.requests.medium", value, headers=[("ce_source", b"mailer")])
            assert (await terminal(tap, name))["source"] == "model"
    [line] = await eventually(lambda: worker.logged("clock_skew"))
    assert 4 * MINUTE_MS < line["ahead_ms"] <= 5 * MINUTE_MS
    assert line["source"] == "mailer"
    assert "synchronise" in line["action"]
