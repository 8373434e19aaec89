"""The failures of an upstream, each with its remedy and with what it says about the next request. Pure."""

from typing import Final, Literal

from shared.errors import ReplylineError
from workers.engine.upstream.form import PLAIN, refused_field

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
    """A request that an upstream did not answer. The message holds nothing that it sent. `blameless`: the request is at
    fault, and the next one may be served; `shuts`: the next one would fare no better; `quiet`: a busy upstream does the
    same; `passing`: the same upstream may serve the same request a moment later; `provoked`: the request's words may be
    the cause. `field`: what it refuses of the request's form."""

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
    """Return the failure that a status other than 200 is. A `Retry-After` in seconds is obeyed up to a minute. `said`:
    the beginning of the body, which names a field of the request's form or does not; `asked`: the request's body."""
    if status // 100 == 3:  # noqa: PLR2004 - redirections
        cause, remedy = "redirects", "write the address that it points to into REPLYLINE_UPSTREAM__URL"
        return UpstreamFailure("redirects", f"{cause} (status {status}), which is not followed: {remedy}")
    field = refused_field(said, asked) if status in _OF_FORM else None
    found = _BY_STATUS.get(status)
    if found is None:
        # llama-server's answer if the model's template raises.
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
