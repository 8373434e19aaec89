"""Encode an answer in the format of OpenAI's Responses interface, as one JSON body or as the events of a stream. Pure.

A client that lost its connection continues after the number of the last event that it received, possibly at another
gateway. So the text is cut into events at fixed positions, however it arrived: the first character, then pieces of a
fixed length. An event's number then means the same text at every gateway.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gateway.doors.openai.chat import DONE, error_body
from gateway.doors.openai.names import item_id
from gateway.exchange.refusals import no_answer
from shared.wire.outcome import ErrorDetail, Response, Status

_PIECE_CHARS: Final = 4
_encode: Final = msgspec.json.Encoder().encode
_PLACE: Final = {"output_index": 0, "content_index": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFields:
    """The fields of a response that repeat the question's."""

    name: str
    model: str
    created_unix_s: int
    previous: str | None = None
    conversation: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    store: bool = True
    background: bool = False

    def whole(
        self, response: Response | None, *, text: str = "", now_unix_s: int = 0, error: ErrorDetail | None = None
    ) -> dict[str, Any]:
        """Return the response. If `response` is None it is in progress, with this `text` so far."""
        status: Status | str = response.status if response is not None else "in_progress"
        if error is not None and status not in {"cancelled", "failed"}:
            status = "failed"
        output = [self.item(response.output_text if response else text, _item_status(response))]
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        shown = {"code": error.code, "message": error.message} if error is not None else None
        return _NOTHING | {
            "id": self.name,
            "object": "response",
            "created_at": self.created_unix_s,
            "completed_at": now_unix_s if status == "completed" else None,
            "status": status,
            "incomplete_details": incomplete,
            "error": shown,
            "model": self.model,
            "previous_response_id": self.previous,
            "conversation": {"id": self.conversation} if self.conversation else None,
            "instructions": self.options.get("instructions"),
            "output": output if response is not None or text else [],
            "usage": None if response is None else _usage(response),
            "temperature": self.options.get("temperature") or 0.0,
            "top_p": self.options.get("top_p") or 1.0,
            "max_output_tokens": self.options.get("max_output_tokens"),
            "store": self.store,
            "background": self.background,
            "metadata": self.metadata | _about(response),
        }

    @property
    def item_id(self) -> str:
        return item_id(self.name)

    def item(self, text: str, status: str) -> dict[str, Any]:
        content = [_part(text)] if status != "in_progress" or text else []
        return {"type": "message", "id": self.item_id, "status": status, "role": "assistant", "content": content}


@dataclass(slots=True, kw_only=True)
class ResponsesEncoder:
    """Encodes the events of one response that follow number `after`, starting at the beginning of its text."""

    asked: ResponseFields
    after: int = -1
    now_unix_s: int
    _number: int = 0
    _told_chars: int = 0
    _text: str = ""
    _begun: bool = False

    def opened(self, response_id: str) -> bytes:
        """Return the events before the text; empty if they were written already."""
        del response_id
        if self._begun:
            return b""
        self._begun = True
        place = {"item_id": self.asked.item_id, **_PLACE}
        return b"".join(
            (
                self._event("response.created", response=self.asked.whole(None)),
                self._event("response.in_progress", response=self.asked.whole(None)),
                self._event("response.output_item.added", output_index=0, item=self.asked.item("", "in_progress")),
                self._event("response.content_part.added", part=_part(""), **place),
            )
        )

    def text(self, text: str) -> bytes:
        """Return the events of the pieces that are complete now."""
        self._text += text
        begun = self.opened("")
        events = [begun] if begun else []
        while (end := self._told_chars + (_PIECE_CHARS if self._told_chars else 1)) <= len(self._text):
            events.append(self._piece(end))
        return b"".join(events)

    def ended(self, response: Response) -> bytes:
        """Return the rest of the text, and the end."""
        events = [self.opened(""), self.text(response.output_text[len(self._text) :]), self._rest()]
        place = {"item_id": self.asked.item_id, **_PLACE}
        item = self.asked.item(self._text, _item_status(response))
        events += [
            self._event("response.output_text.done", text=self._text, logprobs=[], **place),
            self._event("response.content_part.done", part=_part(self._text), **place),
            self._event("response.output_item.done", output_index=0, item=item),
        ]
        error = no_answer(response, late=False) if response.source != "busy" else None
        if error is not None:
            return b"".join(events) + self._failed(error, response)
        end = self._event(f"response.{response.status}", response=self.whole(response))
        return b"".join(events) + end + DONE

    def failed(self, error: ErrorDetail) -> bytes:
        return self.opened("") + self._rest() + self._failed(error, None)

    def reset(self) -> bytes | None:
        return None

    def whole(self, response: Response | None) -> dict[str, Any]:
        return self.asked.whole(response, now_unix_s=self.now_unix_s)

    def _failed(self, error: ErrorDetail, response: Response | None) -> bytes:
        """Return the end of an answer that failed, in both forms that clients support."""
        flat = {"code": error.code, "message": error.message, "param": error.param}
        told = self._event("error", **flat, **error_body(error))
        whole = self.asked.whole(response, text=self._text, error=error)
        return told + self._event("response.failed", response=whole) + DONE

    def _rest(self) -> bytes:
        """Return the event of the text that no piece has had."""
        return self._piece(len(self._text)) if self._told_chars < len(self._text) else b""

    def _piece(self, end: int) -> bytes:
        piece, self._told_chars = self._text[self._told_chars : end], end
        place = {"item_id": self.asked.item_id, **_PLACE}
        return self._event("response.output_text.delta", delta=piece, logprobs=[], **place)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._number
        self._number += 1
        if number <= self.after:
            return b""
        data = _encode({"type": kind, "sequence_number": number, **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def _item_status(response: Response | None) -> str:
    if response is None:
        return "in_progress"
    return "completed" if response.status == "completed" else "incomplete"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _about(response: Response | None) -> dict[str, str]:
    """Return the answer's source and reason, for which OpenAI has no fields."""
    return {} if response is None else {"source": response.source, "reason": response.reason}


def _usage(response: Response) -> dict[str, Any]:
    usage = response.usage
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


# Required fields of every response in Open Responses' specification (2026-04-24) that are constant here.
_NOTHING: Final[dict[str, Any]] = {
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "reasoning": None,
    "max_tool_calls": None,
    "service_tier": "default",
    "safety_identifier": None,
    "prompt_cache_key": None,
}
