"""Find the running sequences that lose their slot: who waits could use it, and they cannot. Pure."""

from collections.abc import Collection

from workers.schedule.goodput.forecast import AT_LEAST, LIKELY, Forecast
from workers.schedule.sequence import Sequence


def lost(
    rows: Collection[Sequence], forecast: Forecast, now_unix_ms: float, *, tried: Collection[str]
) -> list[Sequence]:
    """Return those whose deadline is out of reach even for a short end and without another prompt between. While nobody
    waits for their slots they are to go on, and what they can write by their deadline is read. `tried` run without much
    hope: theirs must be likely to be reached."""
    if not rows:
        return []
    alone_ms = forecast.bare_step_ms(1)
    together_ms = forecast.bare_step_ms(len(rows))
    found: list[Sequence] = []
    for row in rows:
        held = row.held and row.shown_unix_ms is None
        left_ms = row.deadline.deadline_unix_ms - now_unix_ms
        shown_ms = row.deadline.first_token_unix_ms - now_unix_ms if held else left_ms
        if row.expected_output_tokens * alone_ms < min(left_ms, shown_ms):
            continue
        quantile = LIKELY if row.request_id in tried else AT_LEAST
        in_vain = held and forecast.left_held(row, quantile) * together_ms > shown_ms
        if in_vain or forecast.left(row, quantile) * together_ms > left_ms:
            found.append(row)
    return found
