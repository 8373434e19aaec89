"""A client of Replyline's gateways: `AsyncReplyline`, and `Replyline` for code without an event loop.

`ops/setup/packages` builds it, together with the wire messages, as the package `replyline_client`.
"""

from shared.client.blocking import Replyline
from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.client.telling import AnswerEvent, ConnectFailed, Refused
from shared.errors import ReplylineError, SettingsError
from shared.wire.messages import Consent, ResponseCreate, ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import Response

__all__ = [
    "AnswerEvent",
    "AsyncReplyline",
    "ConnectFailed",
    "Consent",
    "Refused",
    "Replyline",
    "ReplylineError",
    "Response",
    "ResponseCreate",
    "ResponseCreated",
    "ResponseDelta",
    "ResponseDone",
    "SettingsError",
    "new_event_id",
]
