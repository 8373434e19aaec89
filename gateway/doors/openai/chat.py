"""Encode an answer in the format of OpenAI's chat completions, as one JSON body or as chunks of a stream. Pure."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from shared.wire.outcome import ErrorDetail, Response


def error_body(error: ErrorDetail) -> dict[str, Any]:
    shown = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": shown}


DONE: Final = b"data: [DONE]\n\n"
_encode: Final = msgspec.json.Encoder().encode
_ANSWER: Final = "resp_"


def event(data: Any) -> bytes:
    return b"data: %b\n\n" % _encode(data)


@dataclass(slots=True, kw_only=True)
class ChatEncoder:
    """Encodes the chunks of one answer. The part common to all chunks is encoded once."""

    model: str
    created_unix_s: int
    include_usage: bool = False
    _head: bytes = field(init=False, default=b"")
    _tail: bytes = field(init=False, default=b"")

    def opened(self, response_id: str) -> bytes:
        """Return the first chunk, the only one with the role."""
        usage = b',"usage":null' if self.include_usage else b""
        common = _encode(self._common(response_id, "chat.completion.chunk"))[1:-1]
        self._head = b'data: {%b,"choices":[{"index":0,"delta":' % common
        self._tail = b"}]%b}\n\n" % usage
        return self._chunk(b'{"role":"assistant","content":""}')

    def text(self, text: str) -> bytes:
        return self._chunk(b'{"content":%b}' % _encode(text))

    def ended(self, response: Response) -> bytes:
        """Return the last chunk, the usage if it was requested, and the end."""
        common = self._common(response.id, "chat.completion.chunk") | _about(response)
        choice = {"index": 0, "delta": {}, "finish_reason": _finish_reason(response)}
        chunks = [event(common | {"choices": [choice]} | ({"usage": None} if self.include_usage else {}))]
        if self.include_usage:
            chunks.append(event(common | {"choices": [], "usage": _usage(response)}))
        return b"".join(chunks) + DONE

    def failed(self, error: ErrorDetail) -> bytes:
        return event(error_body(error)) + DONE

    def reset(self) -> bytes | None:
        return None

    def whole(self, response: Response | None) -> dict[str, Any]:
        assert response is not None  # a completion is returned only when it is complete
        message: dict[str, Any] = {
            "role": "assistant",
            "content": response.output_text,
            "refusal": None,
            "annotations": [],
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(response)}
        common = self._common(response.id, "chat.completion")
        return common | _about(response) | {"choices": [choice], "usage": _usage(response)}

    def _common(self, response_id: str, kind: str) -> dict[str, Any]:
        return {
            "id": "chatcmpl-" + response_id.removeprefix(_ANSWER),
            "object": kind,
            "created": self.created_unix_s,
            "model": self.model,
        }

    def _chunk(self, delta: bytes) -> bytes:
        return b'%b%b,"finish_reason":null%b' % (self._head, delta, self._tail)


def _about(response: Response) -> dict[str, Any]:
    """Return the answer's source and model."""
    fingerprint = {"system_fingerprint": response.model} if response.model else {}
    return {**fingerprint, "source": response.source}


def _finish_reason(response: Response) -> str:
    return "length" if response.status == "incomplete" else "stop"


def _usage(response: Response) -> dict[str, Any]:
    usage = response.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
