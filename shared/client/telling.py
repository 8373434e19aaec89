"""Assemble an answer from its events. Pure.

A gateway may send an answer again from its beginning, even with another text if another gateway has answered the
question again (docs/protocol.md, "Coming back").
"""

from dataclasses import dataclass

import msgspec

from shared.errors import ReplylineError
from shared.wire.messages import ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import ErrorDetail


class ConnectFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The session cannot be opened. `refused` is the gateway's error code if it refused the session."""

    code = "connect_failed"
    retriable = True
    retry_after_s = 0.0
    refused = ""


class Refused(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    """The gateway refused a question or another message; `detail` says why (docs/protocol.md)."""

    def __init__(self, detail: ErrorDetail) -> None:
        super().__init__(f"{detail.code}: {detail.message}")
        self.detail = detail
        self.code = detail.code
        self.retriable = detail.retryable


AnswerEvent = ResponseCreated | ResponseDelta | ResponseDone


@dataclass(slots=True)
class AnswerText:
    """An answer's text as received and as passed on.

    Attributes:
        told: the text received since the answer began, or began again.
        shown: the text passed on since the last `ResponseCreated` that was passed on.
    """

    created: ResponseCreated | None = None
    told: str = ""
    shown: str = ""

    def take(self, event: AnswerEvent) -> list[AnswerEvent]:
        """Return the events to pass on for a received event.

        The first `ResponseCreated` is passed on; a later one only if the text differs, and then the text passed on
        before is void.
        """
        match event:
            case ResponseCreated():
                return self._begin(event)
            case ResponseDelta():
                self.told += event.delta[max(0, len(self.told) - event.offset) :]
                return self._grow(event)
            case ResponseDone():
                return [*self._shorten(event), event]

    def _begin(self, event: ResponseCreated) -> list[AnswerEvent]:
        first, self.created, self.told = self.created is None, event, ""
        return [event] if first else []

    def _grow(self, event: ResponseDelta) -> list[AnswerEvent]:
        """Return the new part of the text, or the whole text if it differs from what was passed on."""
        if self.shown.startswith(self.told):
            return []
        void = not self.told.startswith(self.shown)
        begun = [self.created] if void and self.created is not None else []
        offset = 0 if void else len(self.shown)
        self.shown = self.told
        return [*begun, msgspec.structs.replace(event, offset=offset, delta=self.told[offset:])]

    def _shorten(self, event: ResponseDone) -> list[AnswerEvent]:
        """Return the events of an answer that ends with less text than was passed on."""
        if self.told == self.shown or self.created is None:
            return []
        self.shown = self.told
        whole = ResponseDelta(response_id=event.response.id, seq=0, offset=0, delta=self.told, cursor=event.cursor)
        return [self.created, whole] if self.told else [self.created]
