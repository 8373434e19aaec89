"""Act as the bot in a conversation of Chatwoot, by its own token (chatwoot/chatwoot:swagger)."""

from typing import Any

import msgspec
from msgspec import Struct

from gateway.doors.chatwoot.errand import Errand
from gateway.outbound.calls import CallError, Calls
from shared.wire.codec import json_encode


class _Said(Struct):
    content: str | None = None


class Conversation(Struct):
    """A conversation as it is now: its status, and its last messages."""

    status: str
    messages: list[_Said] = []

    @property
    def last(self) -> str | None:
        return self.messages[-1].content if self.messages else None


class ChatwootApi:
    """`url` is the installation's, and every call goes there. Each method raises `CallError`."""

    def __init__(self, url: str, calls: Calls) -> None:
        self._url = url
        self._calls = calls

    async def conversation(self, errand: Errand) -> Conversation:
        answer = await self._call("GET", errand.path)
        try:
            return msgspec.json.decode(answer, type=Conversation)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise CallError("what it says of a conversation cannot be read", passing=False) from None

    async def say(self, errand: Errand, text: str, *, private: bool) -> None:
        """Post a message to the customer, or a note to those who look after the conversation."""
        message = {"content": text, "message_type": "outgoing", "private": private}
        await self._call("POST", f"{errand.path}/messages", message)

    async def typing(self, errand: Errand, *, on: bool) -> None:
        await self._call("POST", f"{errand.path}/toggle_typing_status", {"typing_status": "on" if on else "off"})

    async def open(self, errand: Errand) -> None:
        """Hand the conversation to people."""
        await self._call("POST", f"{errand.path}/toggle_status", {"status": "open"})

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        data = b"" if body is None else json_encode(body)
        return await self._calls.call(method, self._url + path, data)
