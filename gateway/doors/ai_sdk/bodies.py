"""Read what `useChat` sends: pure. Parts of a message that hold no text are passed over."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from gateway.exchange.question import Question, Role, conversation_of, role_of, session_name
from gateway.http.bodies import read_body
from shared.errors import ProtocolError

_OF_PROGRAMS: Final = ("tool", "data")
_MAX_CHAT_CHARS: Final = 1_024
_encode: Final = msgspec.json.Encoder().encode


class _Part(Struct):
    type: str = "text"
    text: str | None = None


class _UiMessage(Struct):
    """AI SDK 4 and earlier, and messages for a model, have `content`."""

    role: str
    parts: list[_Part] | None = None
    id: Any = None
    content: str | list[_Part] | None = None


class ChatBody(Struct):
    """`messages` is the conversation, or the customer's message alone, as `message` is."""

    id: Annotated[str, Meta(min_length=1, max_length=_MAX_CHAT_CHARS)]
    messages: list[_UiMessage] | None = None
    message: _UiMessage | None = None
    trigger: str = "submit-message"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion(Question):
    """`session` is the chat's."""

    session: str


def session_of(chat: str) -> str:
    """Return the name of a chat's session. Raises `ProtocolError` where no chat is called so."""
    name = session_name((chat,)) if len(chat) <= _MAX_CHAT_CHARS else None
    if name is None:
        raise ProtocolError("invalid_field", f"a chat's id has 1 to {_MAX_CHAT_CHARS} characters", param="id")
    return name


def chat_question(data: bytes) -> ChatQuestion:
    """Return what a body asks. A customer's message alone is asked in the conversation that is remembered here, unless
    an answer is to be replaced: that conversation has it. Raises `ProtocolError`."""
    return question_of(read_body(data, ChatBody))


def question_of(body: ChatBody) -> ChatQuestion:
    """Return what a decoded body asks, as `chat_question` does."""
    regenerates = body.trigger.startswith("regenerate-")
    messages = body.messages or ([body.message] if body.message is not None and not regenerates else [])
    if not messages:
        param = "messages" if body.message is None or regenerates else "message"
        raise ProtocolError("invalid_field", "send the chat's messages", param=param)
    dropped = list[str]()
    turns, text, system = conversation_of(_texts(messages, dropped), "messages")
    return ChatQuestion(
        body=_encode((body.id, body.messages, body.message, body.trigger)),  # a retry's frame has other headers
        session=session_of(body.id),
        input=text,
        turns=None if len(messages) == 1 and not regenerates else turns,
        system=system,
        ignored=tuple(dict.fromkeys(dropped)),
    )


def _texts(messages: list[_UiMessage], dropped: list[str]) -> Iterable[tuple[Role, str]]:
    """Yield each message's role and text. What a customer's message has next to its text is left out: its kind is added
    to `dropped`. Raises `ProtocolError`."""
    for place, message in enumerate(messages):
        at = f"messages[{place}]"
        if message.role in _OF_PROGRAMS:
            dropped.append(message.role)
            continue
        role = role_of(message.role, at)
        content = message.content if isinstance(message.content, list) else [_Part("text", message.content)]
        parts = message.parts or content
        text = "".join(part.text or "" for part in parts if part.type.lower() == "text")
        if role == "user" and any(part.type == "file" for part in parts):
            dropped.append("file")
            if not text.strip():
                raise ProtocolError("unsupported_content", "only text is understood", param=f"{at}.parts")
        yield role, text
