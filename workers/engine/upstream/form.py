"""Adapt a request's form to a server that refuses a field of it. Pure."""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from shared.wire.lenient import UNREADABLE, read_json

PLAIN: Final = "plain"
"""In the place of a field: a server refuses the form, and names no field."""

_OPTIONAL: Final = ("stream_options", "seed", "priority", "top_p", "stop")
# How errors name a field, in the order of looking; `max_completion_tokens` is what they want in place of `max_tokens`.
_NAMED: Final = {
    "max_tokens": re.compile(r"max_completion_tokens"),
    "stream_options": re.compile(r"stream_options|include_usage"),
    "seed": re.compile(r"\bseed\b"),
    "priority": re.compile(r"\bpriority\b"),
    "top_p": re.compile(r"top_p|\btop-p\b"),
    "temperature": re.compile(r"\btemperature\b"),
    "stop": re.compile(r"\bstop\b|stop[ _]sequences?|stop strings?"),
    "system": re.compile(
        r"system (?:role|message|prompt|instruction)|['\"`]system['\"`]|roles must alternate|developer instruction"
        r"|jinja|chat[ _]template|template ?error"
    ),
}
# Where errors say what is wrong. pydantic's `input`, a proxy's `body` and others repeat the request.
_OF_ERRORS: Final = ("error", "errors", "detail", "details", "message", "msg", "reason", "title", "description")
_ECHO: Final = re.compile(r"""['"](?:input|body|request|messages|prompt)['"]\s*:.*|\binput_value=.*""", re.DOTALL)
# A refused value of one of these says nothing of the next request's.
_DEFAULTS: Final[dict[str, Any]] = {"temperature": 0.0, "top_p": 1.0, "stop": None}


def refused_field(said: bytes, asked: bytes = b"", *, among: Collection[str] = tuple(_NAMED)) -> str:
    """Return the field that a refusal is about: an error's own `param` or `loc`, else the first that its message names;
    `PLAIN` if none. A server may repeat the request: what the customer wrote names no field, nor does an echo of ours.

    Args:
        said: the response's body, or its beginning.
        asked: the request's body.
        among: the fields to look for in the message.
    """
    try:
        errors = list(_errors(read_json(said)))
    except UNREADABLE:  # a text, or the beginning of a document
        errors = [said.decode(errors="replace")]
    for error in (each for each in errors if isinstance(each, dict)):
        loc = error.get("loc")
        for part in (error.get("param"), *(loc if isinstance(loc, list) else ())):
            name = str(part).lower().partition(".")[0]
            if name in (*_OPTIONAL, "temperature") and name in among:
                return name
    text = "\n".join(_ECHO.sub("", error.lower()) for error in errors if isinstance(error, str))
    messages = msgspec.json.decode(asked)["messages"] if asked else []
    theirs = "\n".join(each["content"].lower() for each in messages if each["role"] != "system")
    for each in messages:
        text = text.replace(each["content"].lower(), "")
    named = (name for name in _NAMED if name in among and _NAMED[name].search(text))
    return next((name for name in named if not _NAMED[name].search(theirs)), PLAIN)


def _errors(node: Any) -> Iterator[Any]:
    """Give the objects and the messages of an error, without what it repeats of the request."""
    if isinstance(node, str | dict):
        yield node
    parts = [node.get(key) for key in _OF_ERRORS] if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in parts:
        yield from _errors(part)


def adapted(body: bytes, refused: Collection[str]) -> bytes:
    """Return a chat completion's body without the `refused` fields, or with what replaces them."""
    if not refused:
        return body
    fields = msgspec.json.decode(body)
    for name in (*refused, *(_OPTIONAL if PLAIN in refused else ())):
        value = fields.pop(name, None)
        if name == "max_tokens":
            fields["max_completion_tokens"] = value
    messages = fields["messages"]
    if "system" in refused and len(messages) > 1 and messages[0]["role"] == "system":
        first = {"role": "user", "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
        fields["messages"] = [first, *messages[2:]]
    return msgspec.json.encode(fields)


def to_remember(refused: Collection[str], body: bytes) -> frozenset[str]:
    """Return those of the refused fields that a server would refuse of any request: what a client alone asked for is
    left out of its own request only."""
    fields = msgspec.json.decode(body)
    return frozenset(name for name in refused if fields.get(name) == _DEFAULTS.get(name, fields.get(name)))
