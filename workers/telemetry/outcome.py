"""Name a request's outcome at this worker from the operator's view. Pure.

An answer's status says who ended it, which can mislead: after a gateway has sent the fallback at the deadline, it
cancels the request, and the worker sees a cancel by the client. Here such a request counts as missed.
"""

from typing import Literal

from workers.schedule.sequence import Finished

Outcome = Literal["kept", "missed", "failed", "withdrawn"]


def outcome_of(finished: Finished, now_unix_ms: float) -> Outcome:
    """Return the outcome.

    `kept`: the answer began in time and ended normally. `missed`: its first text was late, or it was cut at its
    deadline or given up. `failed`: the engine failed. `withdrawn`: the client cancelled it in time, or missed only a
    deadline that is earlier than the shop's promise.
    """
    sequence = finished.sequence
    if finished.status == "failed":
        return "failed"
    missed: Outcome = "missed" if sequence.deadline.promised is None else "withdrawn"
    if finished.unmet:
        return missed
    first = sequence.shown_unix_ms
    if first is None and sequence.output_ids and finished.status == "completed":
        first = now_unix_ms  # its text was held back until its end
    if first is not None and first > sequence.deadline.first_token_unix_ms:
        return missed
    if finished.status == "cancelled":
        return missed if sequence.expired(now_unix_ms) else "withdrawn"
    return "kept"
