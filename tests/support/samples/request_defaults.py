"""The values that a service fills in for fields that a request leaves open."""

from shared.wire.requests import Defaults

DEFAULTS = Defaults(
    tenant="demo",
    output_tokens=160,
    max_output_tokens=512,
    first_token_ms=200,
    deadline_ms=1_000,
    max_deadline_ms=60_000,
    reply_topic="chat.replies.external",
    reply_topics=("chat.replies", "chat.replies.*"),
)
