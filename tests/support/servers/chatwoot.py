"""Chatwoot as an agent bot meets it: conversations that it keeps, and the signed webhooks that it sends.

The bodies' fields are those of chatwoot/chatwoot: app/models/message.rb (`webhook_data`, with app/presenters of its
conversation), the paths and answers those of its swagger; headers and signature those of lib/webhooks/trigger.rb.
"""

import hashlib
import hmac
import json
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.called_server import Call, CalledServer, Reply

SECRET = b"a secret that Chatwoot has drawn"
TOKEN = b"the bot's token"
_CALL = re.compile(r"/api/v1/accounts/(\d+)/conversations/(\d+)(/\w+)?")


@dataclass(slots=True)
class Conversation:
    status: str = "pending"
    said: list[dict[str, Any]] = field(default_factory=list)
    typing: list[str] = field(default_factory=list)

    def by_bot(self, *, private: bool = False) -> list[str]:
        return [said["content"] for said in self.said if said["private"] is private and said["message_type"] == 1]


@dataclass(slots=True)
class Chatwoot:
    """`before` is called with each call; its result, if any, replaces Chatwoot's answer."""

    conversations: dict[int, Conversation] = field(default_factory=dict)
    before: Callable[[Call], Reply | None] = lambda _: None
    tokens: set[str] = field(default_factory=set)

    def server(self) -> CalledServer:
        return CalledServer(self._answer)

    def _answer(self, call: Call) -> Reply:
        self.tokens.add(call.headers.get("api_access_token", ""))
        found = _CALL.fullmatch(call.path)
        if found is None:
            return Reply(404)
        if (instead := self.before(call)) is not None:
            return instead
        conversation, body = self.conversations[int(found[2])], json.loads(call.body or b"null")
        match call.method, found[3]:
            case "GET", None:
                shown = {"id": int(found[2]), "status": conversation.status, "messages": conversation.said[-1:]}
                return Reply(body=json.dumps(shown).encode())
            case "POST", "/messages":
                conversation.said.append({"content": body["content"], "private": body["private"], "message_type": 1})
            case "POST", "/toggle_status":
                conversation.status = body["status"]
            case "POST", "/toggle_typing_status":
                conversation.typing.append(body["typing_status"])
            case _:
                return Reply(404)
        return Reply(body=b"{}")

    def ask(self, number: int, text: str | None) -> bytes:
        """Return what the bot is sent when the customer writes in that conversation."""
        conversation = self.conversations.setdefault(number, Conversation())
        conversation.said.append({"content": text, "private": False, "message_type": 0})
        return message_created(number, text, status=conversation.status, id=1_000 * number + len(conversation.said))


def message_created(number: int, text: str | None, **changed: Any) -> bytes:
    account = {"id": 1, "name": "Shop"}
    contact = {"id": 7, "name": "Zebedee", "email": None, "phone_number": None, "type": "contact", "account": account}
    conversation = {
        "id": number,
        "inbox_id": 3,
        "status": changed.pop("status", "pending"),
        "channel": "Channel::WebWidget",
        "can_reply": True,
        "messages": [{"id": 4_000 + number, "content": text, "message_type": 0}],
        "meta": {"sender": contact, "assignee": None, "hmac_verified": False},
        "custom_attributes": {},
    }
    event = {
        "event": "message_created",
        "id": 4_000 + number,
        "content": text,
        "content_type": "text",
        "content_attributes": {},
        "message_type": "incoming",
        "private": False,
        "source_id": None,
        "created_at": "2026-11-25T20:00:00.000Z",
        "account": account,
        "inbox": {"id": 3, "name": "Website"},
        "sender": contact,
        "conversation": conversation,
    }
    return json.dumps(event | changed).encode()


def signed(body: bytes, *, delivery: str = "", sent_s: float | None = None, secret: bytes = SECRET) -> dict[str, str]:
    timestamp = str(int(time.time() if sent_s is None else sent_s))
    mac = hmac.new(secret, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "X-Chatwoot-Delivery": delivery or str(uuid.uuid4()),
        "X-Chatwoot-Timestamp": timestamp,
        "X-Chatwoot-Signature": f"sha256={mac}",
    }
