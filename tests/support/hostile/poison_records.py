"""Records that no honest producer writes, each with the reason of its dead letter, and unusual but valid records of
honest producers.

`demo` and `shop.*` are the permitted tenants, `chat.replies` and `chat.replies.*` the reply topics.
"""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import msgpack

from shared.wire.messages import ChatRequest

TENANTS = ("demo", "shop.*")
SECONDS = 1_795_000_000
JSON = {"content-type": b"application/json"}


@dataclass(frozen=True, slots=True)
class Poison:
    value: bytes | None
    headers: dict[str, bytes] = field(default_factory=dict)
    reason: str = "invalid_record"


def fields(**changed: Any) -> dict[str, Any]:
    return {"type": "chat.request", "id": "r1", "session_id": "s1", "input": "How do I return an item?", **changed}


def packed(**changed: Any) -> bytes:
    value: bytes = msgpack.packb(fields(**changed))
    return value


def written(**changed: Any) -> bytes:
    """As JSON."""
    return json.dumps(fields(**changed)).encode()


def _raw(name: str, value: bytes) -> bytes:
    """A request whose field `name` is these bytes of MessagePack."""
    others = {key: field for key, field in fields().items() if key != name}
    return bytes([0x81 + len(others)]) + bytes(msgpack.packb(others)[1:] + msgpack.packb(name)) + value


def _with_headers(reason: str, /, **headers: bytes) -> Poison:
    named = {name if name.startswith("ce_") else name.replace("_", "-"): told for name, told in headers.items()}
    return Poison(packed(), named, reason)


_IDS = {
    "empty": "",
    "65 characters": "x" * 65,
    "a million characters": "x" * 500_000,
    "a slash": "a/b",
    "a parent folder": "../../etc",
    "a newline": "a\nb",
    "a newline at the end": "a\n",
    "a NUL": "a\0b",
    "an escape": "a\x1b[2J",
    "a brace": "a}b{c",
    "a space": "a b",
    "a right-to-left override": "a\u202eb",
    "another alphabet": "сессия",
    "a full-width letter": "\uff41",
    "nothing": None,
    "a list": ["r1"],
    "a colon first": ":r1",
}

MALFORMED: dict[str, Poison] = {
    "nothing": Poison(None),
    "no bytes": Poison(b""),
    "a byte that means nothing": Poison(b"\xc1"),
    "noise": Poison(bytes(range(256))),
    "text": Poison(b"How do I return an item?"),
    "nil": Poison(b"\xc0"),
    "a number": Poison(b"\x05"),
    "a list": Poison(msgpack.packb([fields(), fields()])),
    "a string": Poison(msgpack.packb("chat.request")),
    "an empty map": Poison(b"\x80"),
    "cut short": Poison(packed()[:-1]),
    "cut to one byte": Poison(packed()[:1]),
    "bytes behind it": Poison(packed() + b"\x00"),
    "twice": Poison(packed() * 2),
    "a map of 4 billion": Poison(b"\xdf\xff\xff\xff\xff" + packed()[1:]),
    "a list of 4 billion": Poison(b"\xdd\xff\xff\xff\xff"),
    "a string of 4 billion": Poison(b"\xdb\xff\xff\xff\xff" + b"x" * 100),
    "bytes of 4 billion": Poison(b"\xc6\xff\xff\xff\xff"),
    "an extension of 4 billion": Poison(b"\xc9\xff\xff\xff\xff\x01"),
    "an extension": Poison(b"\xd6\x05abcd"),
    "a timestamp for an id": Poison(_raw("id", b"\xd6\xff\x00\x00\x00\x00")),
    "an extension for a text": Poison(_raw("input", b"\xd4\x07x")),
    "half a surrogate pair in an id": Poison(_raw("id", b"\xa3\xed\xa0\x80")),
    "a deep list": Poison(b"\x91" * 100_000),
    "a deep map": Poison(b"\x81\xa1x" * 100_000),
    "a deep field that nobody knows": Poison(b"\x85" + packed()[1:] + b"\xa1x" + b"\x91" * 100_000),
    "a deep list in metadata": Poison(_raw("metadata", b"\x81\xa1x" + b"\x91" * 100_000)),
    "deep JSON": Poison(b"[" * 100_000, JSON),
    "a deep JSON field": Poison(b'{"x":' * 100_000, JSON),
    "JSON that is cut": Poison(written()[:-1], JSON),
    "JSON with something behind it": Poison(written() + b"x", JSON),
    "a JSON list": Poison(b"[" + written() + b"," + written() + b"]", JSON),
}

TYPED_WRONG: dict[str, Poison] = {
    **{
        f"type {tag!r}": Poison(packed(type=tag))
        for tag in (
            "",
            "chat.done",
            "chat.cancel",
            "chat.erase",
            "response.create",
            5,
            ["chat.request"],
        )
    },
    **{
        f"no {name}": Poison(msgpack.packb({key: value for key, value in fields().items() if key != name}))
        for name in ("id", "session_id", "input")
    },
    **{f"id: {what}": Poison(packed(id=value)) for what, value in _IDS.items()},
    **{f"session: {what}": Poison(packed(session_id=value)) for what, value in _IDS.items()},
    **{f"tenant: {what}": Poison(packed(tenant=value)) for what, value in _IDS.items() if value},
    "tenant: a colon": Poison(packed(tenant="a:b")),
    "a blank input": Poison(packed(input=" \n\t")),
    "an empty input": Poison(packed(input="")),
    **{
        f"{name}={value!r}": Poison(packed(**{name: value}))
        for name, values in {
            "temperature": (-0.1, 2.1, "hot", True),
            "top_p": (1.1, -1.0),
            "max_output_tokens": (-2, 1.5, True, "many"),
            "seed": (1.5, "x"),
            "deadline_unix_ms": (2**53, "soon", True),
            "created_unix_ms": (2**53,),
            "first_token_unix_ms": (2**53,),
            "reply_partition": (-2, 2**53, "first"),
            "reply_topic": (["chat.replies"],),
            "stop": (["x"] * 5, ["x" * 65], [["x"]]),
            "metadata": ({str(n): "" for n in range(17)}, {"a": "x" * 513}, {"x" * 65: ""}, ["a"], "a"),
        }.items()
        for value in values
    },
}

FORGED: dict[str, Poison] = {
    **{
        f"tenant {name!r}": Poison(packed(tenant=name), reason="tenant_not_allowed")
        for name in ("rival", "demo2", "Demo", "shop", "x" * 64)
    },
    **{
        f"reply topic {topic!r}": Poison(packed(reply_topic=topic), reason="reply_topic_not_allowed")
        for topic in (
            "payments",
            "chat.requests",
            "chat.requests.short",
            "chat.cancels",
            "chat.erasures",
            "chat.workers",
            "chat.dead-letters",
            "__consumer_offsets",
            "chat.repliesx",
            "Chat.Replies",
            "chat.replies.\n",
            "chat.replies./../../x",
            "chat.replies.\0",
            "chat.replies. x",
            "chat.replies.\u0441",
            "chat.replies." + "x" * 240,
            "x" * 500_000,
        )
    },
    "a reply topic that only the header names": _with_headers("reply_topic_not_allowed", reply_topic=b"payments"),
    "a reply topic in the header that is no text": _with_headers("reply_topic_not_allowed", reply_topic=b"\xff\xfe"),
    "another reply topic in the header": Poison(
        packed(reply_topic="chat.replies.crm"), {"reply-topic": b"chat.replies"}, "header_mismatch"
    ),
    "another partition in the header": Poison(packed(reply_partition=1), {"reply-partition": b"2"}, "header_mismatch"),
    **{
        f"reply partition {told!r} in the header": _with_headers("invalid_field", reply_partition=told)
        for told in (b"x", b"1.5", b"9" * 5_000, b"4294967296", b"\xff", "²".encode())
    },
    "a partition no topic has": Poison(packed(reply_partition=2**31), reason="invalid_field"),
    **{
        f"deadline {told!r} in the header": _with_headers("invalid_field", deadline_unix_ms=told)
        for told in (b"soon", b"1e12", b"9" * 5_000, b"%d" % SECONDS, b"\xff", b"1.5", b"0x10")
    },
    **{
        f"{name} in seconds": Poison(packed(**{name: SECONDS}), reason="invalid_field")
        for name in ("created_unix_ms", "deadline_unix_ms", "first_token_unix_ms")
    },
    "another id in the header": _with_headers("header_mismatch", ce_id=b"r2"),
    "an id in the header that is no text": _with_headers("header_mismatch", ce_id=b"\xff"),
    "a long id in the header": _with_headers("header_mismatch", ce_id=b"r1" + b"x" * 100_000),
    "another type in the header": _with_headers("header_mismatch", ce_type=b"chat.cancel"),
}

POISON: dict[str, Poison] = MALFORMED | TYPED_WRONG | FORGED


NULLS = {name: None for name in ChatRequest.__struct_fields__ if name not in fields()}
UNPACKED = {name: value for name, value in fields().items() if name != "id"}
SLOPPY: dict[str, Poison] = {
    "half a surrogate pair": Poison(_raw("input", b"\xa3\xed\xa0\x80")),
    "an overlong NUL": Poison(_raw("input", b"\xa2\xc0\x80")),
    "half a character": Poison(_raw("input", b"\xa1\xff")),
    "JSON in UTF-16": Poison(json.dumps(fields()).encode("utf-16"), JSON),
    "half a surrogate pair in JSON": Poison(written(input="\ud800"), JSON),
    "NaN in JSON": Poison(written(temperature=float("nan")), JSON),
    "JSON that says MessagePack": Poison(written()),
    "MessagePack that says JSON": Poison(packed(), JSON),
    "an input that is bytes": Poison(packed(input=b"hi")),
    **{
        f"content type {told!r}": Poison(packed(), {"content-type": told})
        for told in (
            b"application/avro",
            b"",
            b"text/plain",
            b"\xff",
            b"msgpack",
            b"x" * 1_000,
            b"application/msgpack\x00",
        )
    },
    **{f"at most {most} tokens": Poison(packed(max_output_tokens=most)) for most in (2**53, 2**64 - 1)},
    **{
        f"{name}=-1": Poison(packed(**{name: -1}))
        for name in ("deadline_unix_ms", "created_unix_ms", "first_token_unix_ms")
    },
    "null for all that is not set, in JSON": Poison(written(**NULLS), JSON),
    "null for all that is not set": Poison(packed(**NULLS)),
    "empty texts for all that is not set": Poison(packed(**dict.fromkeys(NULLS, ""))),
    "null in what is nested": Poison(written(consent={"training": None}, turns=[{"user": "a", "assistant": None}])),
    **{
        f"{name}={value!r}": Poison(encode(**{name: value}))
        for encode in (packed, written)
        for name, values in {
            "top_p": (0, 0.0, "0.5", float("nan"), "NaN"),
            "max_output_tokens": (0, -1, 75.0, "75", "75.0", "-1"),
            "seed": (-1, 7.0),
            "temperature": (1, "0.7", float("inf"), "-Infinity"),
            "reply_partition": ("0", 0.0),
            "created_unix_ms": ("2026-11-28T11:00:00Z", "1795863600000", 1795863600000.0),
            "deadline_unix_ms": ("2026-11-28T12:00:00.5+01:00",),
            "stop": ("x", [5], None),
            "metadata": ({"a": 1, "b": 1.5, "c": True, "d": None}, None),
            "type": (None,),
            "id": ("r1", 7),
            "session_id": (7, 7.0),
            "consent": ({"training": "true"}, {"training": 1}),
        }.items()
        for value in values
    },
    "bytes for texts": Poison(
        msgpack.packb({name: str(value).encode() for name, value in fields().items()} | {"type": "chat.request"})
    ),
    "a byte order mark": Poison(b"\xef\xbb\xbf" + written(), JSON),
    "surrogates as bytes": Poison(written(input="xx").replace(b"xx", b"\xed\xa0\xbd\xed\xb2\xa9 \xed\xa0\xbd")),
    "a text that was cut in a character": Poison(packed(input="abcd").replace(b"abcd", b"ab\xf0\x9f")),
    "a line break in a string": Poison(written(input="a?").replace(b"a?", b"a\nb?")),
    "JSON in JSON": Poison(json.dumps(written().decode()).encode(), JSON),
    "JSON behind a schema's number": Poison(b"\0\0\0\0\x07" + written()),
    "a structured CloudEvent": Poison(
        json.dumps(
            {"specversion": "1.0", "id": "r1", "source": "/crm", "type": "chat.request", "data": UNPACKED}
        ).encode(),
        {"content-type": b"application/cloudevents+json; charset=utf-8"},
    ),
    "a structured CloudEvent with MessagePack": Poison(
        json.dumps({"specversion": "1.0", "id": "e1", "data_base64": b64encode(packed()).decode()}).encode()
    ),
    **{
        f"JSON as {name} {value!r}": Poison(written(), {name: value})
        for name in ("content-type", "Content-Type", "contentType", "CONTENT_TYPE")
        for value in (
            b'"application/json"',
            b"application/json;charset=UTF-8",
            b"text/json",
            b"application/vnd.crm+json",
        )
    },
    "quoted headers": Poison(
        packed(id="r1"), {"ce_id": b'"r1"', "ce_type": b'"chat.request"', "reply-topic": b'"chat.replies.crm"'}
    ),
    "a deadline as a Java long": Poison(packed(), {"Deadline-Unix-Ms": (1_890_000_000_000).to_bytes(8, "big")}),
    "a partition as a Java int": Poison(packed(), {"reply-partition": (3).to_bytes(4, "big")}),
    "a deadline in ISO 8601": Poison(packed(), {"deadline-unix-ms": b"2026-11-28T12:00:00Z"}),
    "unknown fields": Poison(packed(colour="red", nested={"a": [None]}), {"x": b"y"}),
}
