"""Builders of what a worker works on: a sequence, what computing costs, an order."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Any

from shared.settings import Settings
from shared.wire.deadline import Deadline
from shared.wire.messages import ChatRequest
from shared.wire.requests import Order, settle
from shared.wire.session_key import SessionKey
from workers.engine import Sampling
from workers.schedule.sequence import Sequence

NEVER = Deadline(first_token_unix_ms=2**50, deadline_unix_ms=2**50)
NOW = 1_790_000_000_000.0


def sequence(
    name: str = "r",
    ids: Tokens[int] = (1, 2, 3),
    *,
    output: int = 5,
    deadline: Deadline = NEVER,
    tenant: str = "t",
    session: str = "a",
    **more: Any,
) -> Sequence:
    return Sequence(
        **{"arrived_unix_ms": 0} | more,
        request_id=name,
        prompt_ids=ids,
        max_output_tokens=output,
        sampling=Sampling(),
        deadline=deadline,
        session=SessionKey(tenant, session),
    )


@dataclass(frozen=True)
class LinearCosts:
    """A prompt token takes `token_ms`; a decode step `step_ms`, and `row_ms` for each row."""

    token_ms: float = 0.01
    step_ms: float = 0.1
    row_ms: float = 0.0

    def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float:
        return self.token_ms * tokens

    def decode_ms(self, rows: int, context: int) -> float:
        return self.step_ms + self.row_ms * rows


def order(name: str = "r", *, now: float = NOW, **fields: Any) -> Order:
    """A gateway's request, as a worker settles it."""
    given = {"id": name, "session_id": "s", "input": "hi", "reply_topic": "chat.replies"} | fields
    return settle(ChatRequest(**given), Settings().request_defaults, now)
