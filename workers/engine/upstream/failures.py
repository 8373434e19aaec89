"""The ways in which a request to an upstream server can fail. Each has a remedy for the operator, and says whether the
next request would fail as well. Pure."""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from shared.errors import ReplylineError
from shared.wire.lenient import UNREADABLE, read_json

PLAIN: Final = "plain"
"""Stands for a rejection of the request's form that names no field."""

_OPTIONAL: Final = ("stream_options", "seed", "priority", "top_p", "stop")
# How errors name a field, in the order of search; `max_completion_tokens` is wanted in place of `max_tokens`.
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
# Fields of an error that say what is wrong. pydantic's `input`, a proxy's `body` and others repeat the request.
_OF_ERRORS: Final = ("error", "errors", "detail", "details", "message", "msg", "reason", "title", "description")
_ECHO: Final = re.compile(r"""['"](?:input|body|request|messages|prompt)['"]\s*:.*|\binput_value=.*""", re.DOTALL)
# A rejected value of one of these says nothing about other requests.
_DEFAULTS: Final[dict[str, Any]] = {"temperature": 0.0, "top_p": 1.0, "stop": None}


def refused_field(said: bytes, asked: bytes = b"", *, among: Collection[str] = tuple(_NAMED)) -> str:
    """Return the field that a rejection concerns.

    It is the error's own `param` or `loc`, else the first field that its message names; `PLAIN` without one. A
    server may repeat the request, so the customer's text and our own request do not count.

    Args:
        said: the response's body, or its beginning.
        asked: the request's body.
        among: the fields to look for in the message.
    """
    try:
        errors = list(_errors(read_json(said)))
    except UNREADABLE:  # plain text, or the beginning of a document
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
    """Yield the objects and messages of an error, without repeated parts of the request."""
    if isinstance(node, str | dict):
        yield node
    parts = [node.get(key) for key in _OF_ERRORS] if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in parts:
        yield from _errors(part)


def adapted(body: bytes, refused: Collection[str]) -> bytes:
    """Return a chat completion's body without the `refused` fields, or with their replacements."""
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
    """Return the rejected fields that a server would reject in any request.

    A field that only this client asked for is left out only of that request.
    """
    fields = msgspec.json.decode(body)
    return frozenset(name for name in refused if fields.get(name) == _DEFAULTS.get(name, fields.get(name)))


Cause = Literal[
    "unreachable",
    "no_connection",
    "silent",
    "short",
    "busy",
    "key_refused",
    "forbidden",
    "not_found",
    "redirects",
    "refused",
    "failed",
    "broken_stream",
    "line_too_long",
    "too_much",
    "nothing_said",
    "other_words",
    "withheld",
    "calls_tool",
    "unknown_end",
]

_SHUTS_AT_ONCE: Final[frozenset[Cause]] = frozenset(
    {"unreachable", "no_connection", "busy", "key_refused", "not_found", "redirects"}
)
_BY_STATUS: Final[dict[int, tuple[Cause, str]]] = {
    400: ("refused", "it does not take the request; look into its log"),
    401: ("key_refused", "put a key that it takes into the file of REPLYLINE_UPSTREAM__KEY_FILE"),
    403: ("forbidden", "put a key that may use this model into the file of REPLYLINE_UPSTREAM__KEY_FILE"),
    404: ("not_found", "REPLYLINE_UPSTREAM__URL ends with /v1 and REPLYLINE_UPSTREAM__MODEL is one that it serves"),
    408: ("busy", "it is overloaded"),
    413: ("refused", "it does not take so long a prompt; lower REPLYLINE_WORKER__MAX_LENGTH"),
    422: ("refused", "it does not take the request; look into its log"),
    429: ("busy", "lower REPLYLINE_WORKER__SLOTS"),
    503: ("busy", "it is loading or overloaded"),
}
_OF_FORM: Final = frozenset((400, 422))
_OF_TEMPLATES: Final = ("system",)
_MOST_RETRY_AFTER_MS: Final = 60_000.0


class UpstreamFailure(ReplylineError):  # noqa: N818 - a failure of theirs, as its cause is named
    """A request that an upstream did not answer. The message contains nothing that it sent.

    Attributes:
        blameless: the request is at fault, and the next one may be served.
        shuts: the next request would fail too.
        quiet: a busy upstream behaves in the same way.
        passing: the same upstream may serve the same request a moment later.
        provoked: the request's text may be the cause.
        field: the part of the request's form that it rejects.
    """

    code = "upstream_failed"
    retriable = True

    def __init__(self, cause: Cause, message: str, *, retry_after_ms: float = 0.0, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.cause: Cause = cause
        self.retry_after_ms = retry_after_ms

    @property
    def blameless(self) -> bool:
        return self.cause in {"refused", "nothing_said", "other_words", "short", "withheld", "calls_tool"}

    @property
    def shuts(self) -> bool:
        return self.cause in _SHUTS_AT_ONCE

    @property
    def quiet(self) -> bool:
        return self.cause in {"silent", "no_connection"}

    @property
    def provoked(self) -> bool:
        return not (self.blameless or self.shuts or self.quiet)

    @property
    def passing(self) -> bool:
        return self.cause in {"unreachable", "no_connection", "busy"}


def of_status(status: int, retry_after: str | None, said: bytes = b"", asked: bytes = b"") -> UpstreamFailure:
    """Return the failure for a status other than 200. A `Retry-After` in seconds is obeyed up to a minute.

    Args:
        status: the HTTP status.
        retry_after: the header's value.
        said: the beginning of the response's body, which may name a field of the request.
        asked: the request's body.
    """
    if status // 100 == 3:  # noqa: PLR2004 - redirections
        cause, remedy = "redirects", "write the address that it points to into REPLYLINE_UPSTREAM__URL"
        return UpstreamFailure("redirects", f"{cause} (status {status}), which is not followed: {remedy}")
    field = refused_field(said, asked) if status in _OF_FORM else None
    found = _BY_STATUS.get(status)
    if found is None:
        # llama-server's answer if the model's template raises
        if refused_field(said, asked, among=_OF_TEMPLATES) == PLAIN:
            return UpstreamFailure("failed", f"status {status}; look into its log")
        field, found = _OF_TEMPLATES[0], _BY_STATUS[400]
    try:
        seconds = float(retry_after or 0)
    except ValueError:  # a date
        seconds = 0.0
    wait_ms = min(max(seconds * 1_000, 0.0), _MOST_RETRY_AFTER_MS) if seconds == seconds else 0.0  # noqa: PLR0124 - NaN
    remedy = f"it refuses `{field}`; {found[1]}" if field not in (None, PLAIN) else found[1]
    return UpstreamFailure(found[0], f"status {status}; {remedy}", retry_after_ms=wait_ms, field=field)
