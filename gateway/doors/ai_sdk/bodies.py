"""Decode the requests that `useChat`, the chat hook of Vercel's AI SDK, sends. Parts of a message without text, such as
images, are skipped. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from gateway.exchange.question import ClientQuestion, Role, conversation_of, role_of, session_name
from gateway.http.bodies import read_body
from shared.errors import ProtocolError

_MAX_CHAT_CHARS: Final = 1_024
_encode: Final = msgspec.json.Encoder().encode


class _Part(Struct):
    type: str = "text"
    text: str | None = None


class _UiMessage(Struct):
    """A message. AI SDK 4 and earlier, and messages for a model, have `content`."""

    role: str
    parts: list[_Part] | None = None
    id: Any = None
    content: str | list[_Part] | None = None


class ChatBody(Struct):
    """The body of a request. `messages` has the whole conversation, or like `message` only the customer's message."""

    id: Annotated[str, Meta(min_length=1, max_length=_MAX_CHAT_CHARS)]
    messages: list[_UiMessage] | None = None
    message: _UiMessage | None = None
    trigger: str = "submit-message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion(ClientQuestion):
    """A question with the name of its chat's `session`."""

    session: str


def session_of(chat: str) -> str:
    """Return the name of a chat's session; slashes at the id's end do not count, as in a path. Raises `ProtocolError`
    if the id is not valid."""
    name = session_name((chat.rstrip("/"),)) if len(chat) <= _MAX_CHAT_CHARS else None
    if name is None:
        raise ProtocolError("invalid_field", f"a chat's id must have 1 to {_MAX_CHAT_CHARS} characters", param="id")
    return name


def chat_question(data: bytes) -> ChatQuestion:
    """Return the question in a body. Raises `ProtocolError`.

    A single message is asked in the stored conversation, unless it replaces an answer, which the stored conversation
    would still contain.
    """
    return question_of(read_body(data, ChatBody))


def question_of(body: ChatBody) -> ChatQuestion:
    """Return the question in a decoded body (see `chat_question`)."""
    regenerates = body.trigger.startswith("regenerate-")
    messages = body.messages or ([body.message] if body.message is not None and not regenerates else [])
    if not messages:
        param = "messages" if body.message is None or regenerates else "message"
        raise ProtocolError("invalid_field", "send the chat's messages", param=param)
    dropped = list[str]()
    turns, text, system = conversation_of(_texts(messages, dropped), "messages")
    return ChatQuestion(
        body=_encode((body.id, body.messages, body.message, body.trigger)),  # the frame of a retry has other headers
        session=session_of(body.id),
        input=text,
        turns=None if len(messages) == 1 and not regenerates else turns,
        system=system,
        ignored=tuple(dict.fromkeys(dropped)),
    )


def _texts(messages: list[_UiMessage], dropped: list[str]) -> Iterable[tuple[Role, str]]:
    """Yield each message's role and text. Other kinds of content in a customer's message are skipped and added to
    `dropped`. Raises `ProtocolError` if the question itself has no text."""
    wordless = ""  # where the last question is, if it has no text
    for place, message in enumerate(messages):
        at = f"messages[{place}]"
        role = role_of(message.role, at)
        if role == "program":
            dropped.append(message.role.lower())
            continue
        content = message.content if isinstance(message.content, list) else [_Part("text", message.content)]
        parts = message.parts or content
        text = "".join(part.text or "" for part in parts if part.type.lower() == "text")
        if role == "user":
            has_file = any(part.type.lower() == "file" for part in parts)
            dropped += ["file"] * has_file
            wordless = f"{at}.parts" if has_file and not text.strip() else ""
        yield role, text
    if wordless:
        raise ProtocolError("unsupported_content", "only text is supported", param=wordless)
