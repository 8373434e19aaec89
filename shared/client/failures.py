"""The errors that a gateway's client raises."""

from shared.errors import ReplylineError
from shared.wire.outcome import ErrorDetail


class ConnectFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "connect_failed"
    retriable = True
    retry_after_s = 0.0


class Refused(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The gateway's refusal of a question, or of anything else; `detail` is what it says (docs/protocol.md)."""

    def __init__(self, detail: ErrorDetail) -> None:
        super().__init__(f"{detail.code}: {detail.message}")
        self.detail = detail
        self.code = detail.code
        self.retriable = detail.retryable
