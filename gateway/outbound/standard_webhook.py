"""Encode a hand-off as an HTTP event, signed according to Standard Webhooks. Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import hashlib
import hmac
from base64 import b64encode
from datetime import UTC, datetime

import msgspec

from shared.conversation.handoffs import Handoff

_encode = msgspec.json.Encoder().encode


def handoff_event(handoff: Handoff) -> bytes:
    """Return the event's body: the conversation's identifiers and the reason, without any of its text."""
    created = datetime.fromtimestamp(handoff.created_unix_ms / 1_000, UTC)
    data = {name: value for name, value in msgspec.to_builtins(handoff).items() if name != "type"}
    return _encode({"type": "handoff.created", "timestamp": created.isoformat(timespec="milliseconds"), "data": data})


def signed(key: bytes, event_id: str, body: bytes, now_unix_s: int) -> dict[str, str]:
    """Return the headers of one delivery attempt. The id is the same for every attempt; time and signature are not."""
    content = f"{event_id}.{now_unix_s}.".encode() + body
    signature = b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return {"webhook-id": event_id, "webhook-timestamp": str(now_unix_s), "webhook-signature": f"v1,{signature}"}
