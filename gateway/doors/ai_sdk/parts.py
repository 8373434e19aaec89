"""Encode an answer in the AI SDK's stream format, UI message stream version 1, whose events are called parts. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shared.wire.outcome import ErrorDetail, Response

_encode: Final = msgspec.json.Encoder().encode
_TEXT: Final = "text"
_DELTA: Final = b'{"type":"text-delta","id":"%b","delta":%%b}' % _TEXT.encode()
_SSE_END: Final = b"data: [DONE]\n\n"


def sse(part: bytes) -> bytes:
    return b"data: %b\n\n" % part


@dataclass(slots=True, kw_only=True)
class UiEncoder:
    """Encodes one answer. `message_id` is set if it is known in advance. `frame` wraps each part."""

    message_id: str = ""
    frame: Callable[[bytes], bytes] = sse
    end: bytes = _SSE_END
    _begun: bool = False
    _in_text: bool = False

    def opened(self, response_id: str) -> bytes:
        if self._begun or not response_id:
            return b""
        self._begun = True
        return self._told({"type": "start", "messageId": response_id}, {"type": "start-step"})

    def text(self, text: str) -> bytes:
        begun = b"" if self._in_text else self._text_start()
        return begun + self.frame(_DELTA % _encode(text))

    def _text_start(self) -> bytes:
        self._in_text = True
        return self.opened(self.message_id) + self._told({"type": "text-start", "id": _TEXT})

    def reset(self) -> bytes | None:
        """Return the part that removes the text so far. Clients older than 7.0.69 stop with an error on it."""
        self._in_text = False
        return self._told({"type": "reset-step"})

    def ended(self, response: Response) -> bytes:
        sources = [
            {
                "type": "source-document" if entry.url is None else "source-url",
                "sourceId": entry.id,
                **({"mediaType": "text/plain"} if entry.url is None else {"url": entry.url}),
                "title": entry.question,
                "providerMetadata": {"replyline": {"answer": entry.answer}},
            }
            for entry in response.grounding
        ]
        finish = {
            "type": "finish",
            "finishReason": "length" if response.status == "incomplete" else "stop",
            "messageMetadata": _about(response),
        }
        return self._last(*sources, {"type": "finish-step"}, finish)

    def failed(self, error: ErrorDetail) -> bytes:
        """Return the end of an answer that was cancelled or has failed."""
        if error.code == "cancelled":
            return self._last({"type": "abort"}, {"type": "finish", "finishReason": "other"})
        return self._last({"type": "error", "errorText": error.message}, {"type": "finish", "finishReason": "error"})

    def _last(self, *parts: dict[str, Any]) -> bytes:
        begun = self.opened(self.message_id)
        text_end = [{"type": "text-end", "id": _TEXT}] if self._in_text else []
        return begun + self._told(*text_end, *parts) + self.end

    def _told(self, *parts: dict[str, Any]) -> bytes:
        return b"".join(self.frame(_encode(part)) for part in parts)


def _about(response: Response) -> dict[str, Any]:
    """Return the answer's source and reason. `replaced` counts code points of the text as shown."""
    about: dict[str, Any] = {"source": response.source, "reason": response.reason}
    if response.model:
        about["model"] = response.model
    if response.replaced:
        about["replaced"] = response.replaced
    return about
