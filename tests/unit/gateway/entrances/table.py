"""Every entrance with a message that it accepts."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.doors.ai_sdk.bodies import ChatBody as AiSdkBody
from gateway.doors.ai_sdk.sockets import _decode as decode_frame
from gateway.doors.chatwoot.events import decode_errand, read_event
from gateway.doors.edge.door import _entries as decode_journal
from gateway.doors.grpc.messages import client_message
from gateway.doors.openai.bodies import ChatBody, ResponsesBody
from gateway.http.bodies import read_body
from shared.conversation.handoffs import decode_handoff
from shared.versions.registry import decode_entry
from shared.wire import codec
from shared.wire.requests import open_request

HALF = "where is my parcel \ud83d"
ASKS = {"type": "response.create", "event_id": "e1", "input": HALF, "seed": 7, "deadline_ms": 9_000, "turns": []}
RECORD = {"type": "chat.request", "id": "r1", "session_id": "s1", "input": HALF, "max_output_tokens": 75}
PARTS = {"role": "user", "parts": [{"type": "text", "text": HALF}]}
NAMED = {"request_id": "r1", "reply_partition": 3, "created_unix_ms": 1_795_867_200_000}
NUMBERED = {"id": 7, "status": "pending"}
TURN = {"request_id": "r1", "user": HALF, "output_text": "a", "source": "faq", "created_unix_ms": 5}


@dataclass(frozen=True, slots=True)
class Entrance:
    """`decode` accepts JSON, or plain objects if `plain`; `packed`: MessagePack."""

    decode: Callable[[Any], Any]
    message: Any
    packed: bool = False
    plain: bool = False

    def read(self, message: Any) -> Any:
        if self.plain:
            return self.decode(message)
        if self.packed:
            whole = json.dumps(message).replace("\\ud83d", "###")
            return self.decode(msgspec.msgpack.encode(json.loads(whole)).replace(b"###", b"\xed\xa0\xbd"))
        return self.decode(json.dumps(message).encode())


def record(decode: Callable[[bytes], Any], **message: Any) -> dict[str, Entrance]:
    name = str(message["type"])
    return {f"{name} in {form}": Entrance(decode, message, form == "MessagePack") for form in ("JSON", "MessagePack")}


ENTRANCES: dict[str, Entrance] = {
    "WebSocket, JSON": Entrance(codec.client_decoder(text=True), ASKS),
    "WebSocket, MessagePack": Entrance(codec.client_decoder(text=False), ASKS, packed=True),
    "WebSocket, session.start": Entrance(
        codec.client_decoder(text=True), {"type": "session.start", "session_id": "s1", "token": "t"}
    ),
    "WebSocket, response.cancel": Entrance(
        codec.client_decoder(text=False), {"type": "response.cancel", "target_event_id": "e1"}, packed=True
    ),
    "WebSocket, handoff.request": Entrance(
        codec.client_decoder(text=True), {"type": "handoff.request", "event_id": "e1", "language": "zh"}
    ),
    "gRPC": Entrance(
        lambda said: client_message({"response_create": {**said, "input": "hi"}}), {**ASKS, "input": "hi"}, plain=True
    ),
    "chat completions": Entrance(
        lambda data: read_body(data, ChatBody),
        {"model": "replyline", "messages": [{"role": "user", "content": HALF}], "max_tokens": 75, "n": 1},
    ),
    "responses": Entrance(
        lambda data: read_body(data, ResponsesBody),
        {"model": "replyline", "input": [{"role": "user", "content": [{"type": "input_text", "text": HALF}]}]},
    ),
    "AI SDK": Entrance(lambda data: read_body(data, AiSdkBody), {"id": "c1", "messages": [PARTS]}),
    "AI SDK, sockets": Entrance(
        decode_frame, {"type": "send", "requestId": "1", "id": "c1", "messages": [PARTS], "headers": {"a": "b"}}
    ),
    "Chatwoot": Entrance(
        read_event,
        {
            "event": "message_created",
            "id": 5,
            "message_type": "incoming",
            "content": HALF,
            "account": {"id": 1},
            "conversation": NUMBERED,
        },
    ),
    "edge": Entrance(decode_journal, [{"session_id": "s1", "turn": TURN}, {"session_id": "s1", "erased": 3}]),
    **record(lambda value: open_request(value, {}), **RECORD),
    **record(codec.decode_notice, type="chat.cancel", **NAMED),
    **record(codec.decode_notice, type="chat.adopt", **NAMED),
    **record(codec.decode_erase, type="chat.erase", tenant="demo", session_id="s1", generation=4),
    **record(codec.decode_forgotten, type="chat.forgotten", person="0a1b", unix_ms=4),
    **record(
        codec.decode_reply, type="chat.delta", request_id="r1", session_id="s", attempt=1, seq=0, offset=0, delta=HALF
    ),
    **record(
        decode_handoff,
        type="chat.handoff",
        id="h1",
        tenant="demo",
        session_id="s1",
        reason="requested",
        language="en",
        created_unix_ms=7,
        transcript="key",
    ),
    **record(decode_errand, type="chat.post", account=1, conversation=7, tenant="t", session_id="s", created_unix_ms=5),
    **record(decode_entry, type="checked", revision="r1", author="a", unix_ms=5, failures=[]),
}


def each(message: Any, change: Callable[[Any], Any]) -> Any:
    """The message with each of its numbers and texts changed, however deep."""
    if isinstance(message, dict):
        return {name: each(value, change) for name, value in message.items()}
    if isinstance(message, list):
        return [each(value, change) for value in message]
    return change(message)
