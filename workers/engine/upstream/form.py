"""Adapt a request's form to a server that refuses a field of it. Pure."""

import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

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
    ),
}
# A refused value of one of these says nothing of the next request's.
_DEFAULTS: Final[dict[str, Any]] = {"temperature": 0.0, "top_p": 1.0, "stop": None}


def refused_field(said: bytes) -> str:
    """Return the field that a refusal (400, 422) is about: an error's own `param` or `loc`, else the first that its
    text names; `PLAIN` if none."""
    text = said.decode(errors="replace").lower()
    for pattern in (r'"param"\s*:\s*"(\w+)', r'"loc"\s*:\s*\[[^\]]*?"(\w+)"\s*\]'):
        found = re.search(pattern, text)
        if found is not None and found[1] in (*_OPTIONAL, "temperature"):
            return found[1]
    return next((name for name, pattern in _NAMED.items() if pattern.search(text)), PLAIN)


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
