"""Decide whether an answer kept the shop's promise: its first text came before the soft deadline, and its end before
the hard one. Pure."""

from dataclasses import dataclass
from typing import Final

from shared.wire.deadline import Deadline
from shared.wire.outcome import Response

# Every accepted request has its terminal event at most this long after its deadline.
GRACE_MS: Final = 250.0
_NEARLY: Final = 0.95  # share of the time until the shop's deadline


@dataclass(frozen=True, slots=True)
class Attainment:
    """The deadlines that an answer met. `first_token`: the worker's first text met the soft one. `whole`: the worker's
    complete answer met the hard one. A gateway's fallback meets neither."""

    first_token: bool
    whole: bool


def attainment(
    response: Response, promise: Deadline, received_unix_ms: float, *, stood_in: bool, silent: bool = False
) -> Attainment | None:
    """Return which deadlines were met.

    None if that cannot be judged: the client cancelled, asked for a person or missed a deadline shorter than the
    shop's, or no time was measured. An answer misses the promise under any client deadline if it failed, if the model
    was `silent`, or if it took nearly the time of the shop's own deadline.
    """
    timings = response.timings
    if response.status == "cancelled" or response.source == "handoff" or timings.total_ms is None:
        return None
    kept = not stood_in and response.status != "failed"
    first_ms, whole_ms = timings.ttft_ms, timings.total_ms
    judged = Attainment(
        first_token=kept and first_ms is not None and received_unix_ms + first_ms <= promise.first_token_unix_ms,
        whole=kept and response.reason != "deadline" and received_unix_ms + whole_ms <= promise.deadline_unix_ms,
    )
    shops = promise.promised
    if shops is None or response.status == "failed" or silent or (judged.first_token and judged.whole):
        return judged
    had_ms = (shops.first_token_unix_ms if stood_in else shops.deadline_unix_ms) - received_unix_ms
    return judged if whole_ms >= _NEARLY * had_ms else None


def is_late(response: Response, promise: Deadline, received_unix_ms: float) -> bool:
    """Return whether an answer ended later than any answer may, fallbacks included."""
    total_ms = response.timings.total_ms
    return total_ms is not None and received_unix_ms + total_ms > promise.deadline_unix_ms + GRACE_MS
