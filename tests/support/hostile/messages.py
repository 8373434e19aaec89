"""Messages that no honest client sends, drawn from a seed: `hostile_messages(Random(1), text=True)`. Pure.

Valid ones are mixed in, so that a session advances and is attacked in each of its states.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.support.hostile.values import JSON, MSGPACK, Form, Pairs, strange

MAX_BYTES: Final = 65_536

TYPES = (
    *("session.start", "session.refresh", "session.delete", "response.create", "response.cancel", "handoff.request"),
    *("feedback", "pong"),
)
FIELDS = {
    "session.start": ("token", "session_id", "resume", "client"),
    "session.refresh": ("token",),
    "response.create": (
        *("event_id", "input", "max_output_tokens", "temperature", "top_p", "seed", "stop", "deadline_ms"),
        *("first_token_ms", "metadata", "traceparent"),
    ),
    "response.cancel": ("response_id", "target_event_id"),
    "handoff.request": ("event_id", "language"),
    "feedback": ("response_id", "event_id", "rating", "resolved", "reason"),
}
OTHER_TYPES = (
    "",
    "ping",
    "handoff.created",
    "chat.request",
    "chat.done",
    "session.created",
    "response.done",
    "PONG",
    "pong ",
    "pong\0",
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """A hostile message; `kind` names its fault."""

    kind: str
    data: bytes


def hostile_messages(random: Random, *, text: bool) -> Iterator[Hostile]:
    """Without end; each is at most `MAX_BYTES` long, as the gateway's limit is."""
    form = JSON if text else MSGPACK
    kinds = list(KINDS)
    while True:
        kind = random.choice(kinds)
        yield Hostile(kind, KINDS[kind](random, form)[:MAX_BYTES])


# --- messages of honest clients


def good(random: Random) -> dict[str, Any]:
    kind = random.choice((*TYPES, "session.start", "response.create", "response.create"))
    return {"type": kind} | _fields(random, kind)


def _fields(random: Random, kind: str) -> dict[str, Any]:
    match kind:
        case "session.start":
            fields = _some(random, {"session_id": "s1", "client": {"name": "web", "version": "1"}})
        case "session.refresh":
            fields = {"token": token(random)}
        case "response.create":
            asked = {"event_id": f"e{random.randrange(20)}", "input": random.choice(("Hello", "怎么退货？", "x" * 300))}
            fields = asked | _some(random, _OPTIONS)
        case "response.cancel":
            fields = {random.choice(FIELDS[kind]): f"e{random.randrange(20)}"}
        case "handoff.request":
            fields = _some(random, {"event_id": "h", "language": random.choice(("en", "zh"))})
        case "feedback":
            rating = {"rating": random.choice(("up", "down")), "resolved": random.random() < 0.5, "reason": "wrong"}
            fields = {"response_id": f"e{random.randrange(20)}"} | _some(random, rating)
        case _:
            fields = {}
    return fields


_OPTIONS = {
    "max_output_tokens": 4,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 7,
    "stop": ["\n", "END"],
    "deadline_ms": 2_000,
    "first_token_ms": 500,
    "metadata": {"page": "cart"},
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


def _some(random: Random, fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if random.random() < 0.3}


def token(random: Random) -> str:
    """Something like a JSON Web Token: its parts are JSON of any kind, or are not."""
    nested = b'{"alg":"HS256","x":' + b"[" * random.randrange(3_000)
    heads = (b'{"alg":"HS256"}', b'{"alg":"none"}', b'{"alg":["HS256"]}', b"[]", b"\xff", random.randbytes(9), nested)
    parts = [random.choice(heads), random.choice((b"{}", b'{"exp":1e999}', b"[" * 900, b"")), random.randbytes(32)]
    return ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts[: random.choice((1, 2, 3, 3, 3))])


# --- messages, each wrong in its own way


def _good(random: Random, form: Form) -> bytes:
    return form.write(good(random))


def _noise(random: Random, form: Form) -> bytes:
    return random.randbytes(random.randrange(200))


def _cut(random: Random, form: Form) -> bytes:
    data = _good(random, form)
    return data[: random.randrange(len(data))]


def _behind(random: Random, form: Form) -> bytes:
    return _good(random, form) + random.choice((_good(random, form), random.randbytes(3), b" ", b"\x00", b"\n\n"))


def _flipped(random: Random, form: Form) -> bytes:
    data = bytearray(_good(random, form))
    for _ in range(random.randrange(1, 9)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _spliced(random: Random, form: Form) -> bytes:
    """Parts of two messages, lost, repeated and put together."""
    data = _good(random, form)
    other = random.choice((_good(random, form), data, form.odd(random).data, b""))
    start, stop = sorted(random.choices(range(len(data) + 1), k=2))
    return data[:start] + other[random.randrange(len(other) + 1) :] + data[stop:]


def _wrong_fields(random: Random, form: Form) -> bytes:
    message = good(random)
    names = (*FIELDS.get(message["type"], ()), "type", "unknown")
    for name in random.choices(names, k=random.randrange(1, 4)):
        message[name] = strange(random, form)
    return form.write(message)


def _nested(random: Random, form: Form) -> bytes:
    """Depth without end: the whole message, a field that is known, or one that is not."""
    bomb = form.nested(random, int(10 ** random.uniform(1, 4.8)))
    if random.random() < 0.3:
        return bomb.data
    message = good(random)
    name = random.choice((*FIELDS.get(message["type"], ()), "type", "unknown"))
    return form.write({**message, name: bomb})


def _odd_whole(random: Random, form: Form) -> bytes:
    return form.write(random.choice((form.odd(random), strange(random, form), [good(random)], [good(random)] * 50)))


def _keys(random: Random, form: Form) -> bytes:
    """Keys twice, keys that are no names, keys without number."""
    pairs = Pairs(good(random).items())
    for _ in range(random.choice((1, 2, 5, 500))):
        key = random.choice((random.choice(pairs)[0], strange(random, form), "x" * random.randrange(40), "type"))
        if not isinstance(key, list | dict | bytes):
            pairs.insert(random.randrange(len(pairs) + 1), (key, strange(random, form)))
        if len(form.write(pairs)) > MAX_BYTES // 2:
            break
    return form.write(pairs)


def _unknown_type(random: Random, form: Form) -> bytes:
    return form.write({**good(random), "type": random.choice((*OTHER_TYPES, "x" * 3_000, strange(random, form)))})


def _as_the_other(random: Random, form: Form) -> bytes:
    return (MSGPACK if form is JSON else JSON).write(good(random))


def _token(random: Random, form: Form) -> bytes:
    return form.write({"type": random.choice(("session.start", "session.refresh")), "token": token(random)})


def _cursor(random: Random, form: Form) -> bytes:
    cursor = random.choice(
        (urlsafe_b64encode(random.randbytes(random.randrange(90))).decode(), "é" * 9, "=", "A" * 4_097)
    )
    return form.write({"type": "session.start", "resume": {"cursor": cursor}})


KINDS: Final[dict[str, Callable[[Random, Form], bytes]]] = {
    "good": _good,
    "noise": _noise,
    "cut short": _cut,
    "bytes behind it": _behind,
    "flipped bits": _flipped,
    "spliced": _spliced,
    "wrong fields": _wrong_fields,
    "nested without end": _nested,
    "no object": _odd_whole,
    "keys": _keys,
    "unknown type": _unknown_type,
    "the other form": _as_the_other,
    "token": _token,
    "cursor": _cursor,
}
