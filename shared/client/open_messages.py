"""The messages of a session that the gateway has not yet answered in full."""

import asyncio
import secrets
from dataclasses import dataclass, field

from shared.client.telling import AnswerEvent, AnswerText
from shared.errors import ReplylineError
from shared.wire.messages import (
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffRequest,
    ResponseCreate,
    SessionDelete,
    SessionDeleted,
)

Confirmation = HandoffCreated | FeedbackRecorded | SessionDeleted


@dataclass(slots=True)
class OpenQuestion:
    """A question whose answer has not ended."""

    request: ResponseCreate
    events: asyncio.Queue[AnswerEvent | ReplylineError] = field(default_factory=asyncio.Queue)
    telling: AnswerText = field(default_factory=AnswerText)
    cancelled: bool = False
    refused: bool = False  # refused once, by an error that named no question


@dataclass(slots=True)
class OpenMessage:
    """A message that is not part of an answer, and the future of the gateway's response to it."""

    message: HandoffRequest | Feedback | SessionDelete
    answer: asyncio.Future[Confirmation] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def new_event_id() -> str:
    return f"ev_{secrets.token_hex(8)}"
