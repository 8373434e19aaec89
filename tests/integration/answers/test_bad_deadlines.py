"""A deadline that cannot be right has one stated outcome (docs/deadlines.md), and the record after it is served."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import pytest_asyncio

from tests.support.system import MakeSystem, Service, System, Tap, eventually

QUESTION = "How do I return an item?"
MINUTE_MS = 60_000


@pytest_asyncio.fixture(scope="module")
async def system(make_system: MakeSystem) -> System:
    return await make_system(worker__fake_decode_ms_per_step=2, promise__first_token_ms=8_000)


@pytest_asyncio.fixture(scope="module", autouse=True)
async def worker(system: System) -> Service:
    """Beside a gateway, which routes what comes to the inbox."""
    worker, _ = await asyncio.gather(system.worker().ready(), system.gateway().ready())
    return worker


def now_ms() -> int:
    return int(time.time() * 1_000)


def request(name: str, **fields: Any) -> bytes:
    given = {"type": "chat.request", "id": name, "session_id": "s", "input": QUESTION, "max_output_tokens": 5, **fields}
    packed: bytes = msgpack.packb({field: value for field, value in given.items() if value is not None})
    return packed


async def done_of(tap: Tap, name: str) -> dict[str, Any]:
    def ends(record: Any) -> bool:
        event = msgpack.unpackb(record.value)
        return bool(event["type"] == "chat.done" and event["request_id"] == name)

    done: dict[str, Any] = msgpack.unpackb((await tap.until(ends)).value)
    return done


REFUSED: dict[str, tuple[dict[str, Any], dict[str, bytes], str, str]] = {
    "in seconds": ({"deadline_unix_ms": 1_795_000_000}, {}, "invalid_field", "seconds; write milliseconds"),
    "its first token's in seconds": ({"first_token_unix_ms": 1_795_000_000}, {}, "invalid_field", "seconds"),
    "created in seconds": ({"created_unix_ms": 1_795_000_000}, {}, "invalid_field", "created_unix_ms=1795000000"),
    "in nanoseconds": ({"deadline_unix_ms": 1_795_000_000 * 10**9}, {}, "invalid_record", "deadline_unix_ms"),
    "negative": ({"deadline_unix_ms": -1}, {}, "invalid_record", "deadline_unix_ms"),
    "text": ({"deadline_unix_ms": "tomorrow"}, {}, "invalid_record", "deadline_unix_ms"),
    "a fraction": ({"deadline_unix_ms": 1.5}, {}, "invalid_record", "deadline_unix_ms"),
    "a header in seconds": ({}, {"deadline-unix-ms": b"1795000000"}, "invalid_field", "deadline-unix-ms=1795000000"),
    "a negative header": ({}, {"deadline-unix-ms": b"-1"}, "invalid_field", "deadline-unix-ms"),
    "text in the header": ({}, {"deadline-unix-ms": b"tomorrow"}, "invalid_field", "tomorrow"),
    "an endless header": ({}, {"deadline-unix-ms": b"9" * 5_000}, "invalid_field", "deadline-unix-ms"),
}


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_no_time_in_milliseconds_is_put_aside_and_the_next_one_is_served(
    system: System, unique: Callable[[str], str], what: str, topic: str
) -> None:
    fields, headers, reason, detail = REFUSED[what]
    name = unique("next")
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        given = await system.produce(topic, request("x", **fields), partition=1, headers=list(headers.items()))
        await system.produce(topic, request(name), partition=1)
        assert (await done_of(replies, name))["source"] == "model"
        origin = f"{given.topic}/{given.partition}/{given.offset}".encode()
        letter = await letters.until(lambda record: ("dead-letter-origin", origin) in record.headers)
    told = dict(letter.headers)
    assert told["dead-letter-reason"].decode() == reason
    assert detail in told["dead-letter-detail"].decode()


PAST: dict[str, Callable[[int], dict[str, int]]] = {
    "zero": lambda _: {"deadline_unix_ms": 0},
    "a duration where a time belongs": lambda _: {"deadline_unix_ms": 15_000},
    "a deadline": lambda now: {"deadline_unix_ms": now - 5 * MINUTE_MS},
    "a first token's deadline": lambda now: {"first_token_unix_ms": now - 5 * MINUTE_MS},
    "a clock that is behind, or a request that has waited": lambda now: {"created_unix_ms": now - 5 * MINUTE_MS},
}


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
@pytest.mark.parametrize("what", PAST)
async def test_a_deadline_that_is_past_is_answered_at_once_without_the_engine(
    system: System, worker: Service, unique: Callable[[str], str], what: str, topic: str
) -> None:
    """By the FAQ; it never becomes the most urgent."""
    name = unique("past")
    before = await worker.metric("replyline_worker_tokens_total", kind="prompt")
    async with system.reading("chat.replies.external") as tap:
        await system.produce(topic, request(name, **PAST[what](now_ms())))
        done = await done_of(tap, name)
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
async def test_a_deadline_too_far_ahead_is_brought_back_and_served(
    system: System, unique: Callable[[str], str], what: str
) -> None:
    name = unique("far")
    async with system.reading("chat.replies.external") as tap:
        await system.produce("chat.requests.short", request(name, **FAR[what](now_ms())))
        done = await done_of(tap, name)
    assert (done["source"], len(done["output_text"])) == ("model", 5)


async def test_the_earlier_of_header_and_value_counts(system: System, unique: Callable[[str], str]) -> None:
    past, future = now_ms() - MINUTE_MS, now_ms() + MINUTE_MS
    async with system.reading("chat.replies.external") as tap:
        for header, value in ((past, future), (future, past)):
            name = unique("two")
            headers = [("deadline-unix-ms", str(header).encode())]
            await system.produce("chat.requests.short", request(name, deadline_unix_ms=value), headers=headers)
            assert (await done_of(tap, name))["source"] == "faq"


async def test_a_clock_that_is_ahead_is_said_once_a_minute_and_costs_nobody_time(
    make_system: MakeSystem, unique: Callable[[str], str]
) -> None:
    """With what to do about it, and without a word of the message."""
    system = await make_system()
    worker = await system.worker(worker__buckets="medium").ready()
    created = now_ms() + 5 * MINUTE_MS
    async with system.reading("chat.replies.external") as tap:
        for _ in range(3):
            name = unique("ahead")
            value = request(name, created_unix_ms=created, deadline_unix_ms=created + 10_000)
            await system.produce("chat.requests.medium", value, headers=[("ce_source", b"mailer")])
            assert (await done_of(tap, name))["source"] == "model"
    [line] = await eventually(lambda: worker.logged("clock_skew"))
    assert 4 * MINUTE_MS < line["ahead_ms"] <= 5 * MINUTE_MS
    assert line["source"] == "mailer"
    assert "synchronise" in line["action"]
    await worker.stop()
