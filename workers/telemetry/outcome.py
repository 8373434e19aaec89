"""Name what came of a request at this worker, as its operator wants to know: pure.

How an answer ended says who ended it. A gateway that has given the fallback at the deadline cancels at the worker; by
the worker's own books the customer went away. Here the deadline decides.
"""

from typing import Literal

from workers.schedule.sequence import Finished

Outcome = Literal["kept", "missed", "failed", "withdrawn"]


def outcome_of(finished: Finished, now_unix_ms: float) -> Outcome:
    """`kept`: the answer ended by itself, begun in time. `missed`: its first text came late, or it was cut by its
    deadline or given up. `failed`: the engine did. `withdrawn`: its client cancelled it in time, or asked for a sooner
    deadline than the shop promises and it was missed."""
    sequence = finished.sequence
    if finished.status == "failed":
        return "failed"
    missed: Outcome = "missed" if sequence.deadline.promised is None else "withdrawn"
    if finished.unmet:
        return missed
    first = sequence.shown_unix_ms
    if first is None and sequence.output_ids and finished.status == "completed":
        first = now_unix_ms  # it was held back until its end
    if first is not None and first > sequence.deadline.first_token_unix_ms:
        return missed
    if finished.status == "cancelled":
        return missed if sequence.expired(now_unix_ms) else "withdrawn"
    return "kept"
