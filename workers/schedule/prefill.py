"""Decide which prompts a step computes, and how much of them: chunks small enough that decoding stalls no longer than
its budget (chunked prefill: Sarathi, arXiv 2308.16369). Pure.
"""

from collections.abc import Callable
from typing import Final

from workers.engine import PrefillChunk
from workers.schedule.policy import Costs
from workers.schedule.sequence import Sequence
from workers.schedule.slots import SlotTable

_CHUNK_GRAIN: Final = 16


def plan_prefill(
    slots: SlotTable, urgency: Callable[[Sequence], float], *, budget: Callable[[int], int], max_rows: int
) -> tuple[tuple[PrefillChunk, ...], tuple[Sequence, ...]]:
    """Return the most urgent prompt's next chunk, and its sequence; when it is a whole prompt, its neighbours' too, as
    many as fit. `budget`: how many tokens a step may compute of a prompt with so many computed before."""
    prefilling = slots.prefilling
    if not prefilling:
        return (), ()
    first = min(prefilling, key=urgency) if slots.may_overtake else prefilling[0]
    tokens = budget(first.computed)
    rows, used, place = [first], len(first.prompt_ids), prefilling.index(first)  # whole prompts alone are joined
    if first.computed == 0 and used <= tokens and slots.may_overtake_all(place):
        for row in prefilling[place + 1 :]:
            used += len(row.prompt_ids)
            if row.computed or used > tokens or len(rows) == max_rows:
                break
            rows.append(row)
    return tuple([_chunk(row, slots.slot_of(row), tokens) for row in rows]), tuple(rows)


def chunk_tokens(costs: Costs, past: int, *, most: int, stall_ms: float) -> int:
    """Return how many tokens of a prompt with `past` computed may be computed while others decode, at most `most`: as
    many as take `stall_ms`."""
    low, high = 1, max(most // _CHUNK_GRAIN, 1)
    while low < high:
        middle = (low + high + 1) // 2
        if costs.prefill_ms(middle * _CHUNK_GRAIN, past=past) <= stall_ms:
            low = middle
        else:
            high = middle - 1
    return min(low * _CHUNK_GRAIN, most)


def _chunk(sequence: Sequence, slot: int, tokens: int) -> PrefillChunk:
    past = sequence.computed
    token_ids = sequence.prompt_ids[past : past + tokens]
    last = past + len(token_ids) == len(sequence.prompt_ids)
    return PrefillChunk(slot=slot, past=past, token_ids=token_ids, sampling=sequence.sampling if last else None)
