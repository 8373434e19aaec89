"""Decide which prompts a step computes, and how much of each.

Chunks are small enough that decoding stalls no longer than allowed (chunked prefill: Sarathi, arXiv 2308.16369). Pure.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from workers.engine import PrefillChunk
from workers.schedule.policy import Costs
from workers.schedule.sequence import Sequence
from workers.schedule.slots import SlotTable
from workers.schedule.work import Work

_CHUNK_GRAIN: Final = 16


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits the prompt tokens of a step: at most `most`, and so few that the step takes at most `stall_ms` longer.

    A few tokens are always allowed.
    """

    costs: Costs
    rows: Work
    most: int
    stall_ms: float

    def tokens(self, past: int) -> int:
        """Return how many tokens of a prompt with `past` computed tokens may be computed."""
        fitting = self.beside(self.rows, past)
        return fitting or min(_CHUNK_GRAIN, self.most)

    def beside(self, work: Work, past: int) -> int:
        """Return how many tokens of a prompt with `past` computed tokens may join a step that computes `work`; may
        be 0."""
        most = self.most - work.tokens
        if math.isinf(self.stall_ms):
            return most
        low, high = 0, most // _CHUNK_GRAIN
        limit_ms = self.costs.ms(self.rows) + self.stall_ms
        while low < high:
            middle = (low + high + 1) // 2
            if self.costs.ms(work.joined(middle * _CHUNK_GRAIN, past)) <= limit_ms:
                low = middle
            else:
                high = middle - 1
        return low * _CHUNK_GRAIN


def plan_prefill(
    slots: SlotTable, urgency: Callable[[Sequence], float], *, budget: Budget, max_rows: int, mixes: bool
) -> tuple[tuple[PrefillChunk, ...], tuple[Sequence, ...]]:
    """Return the next chunks of prompts, and their sequences.

    For an engine that mixes, they are those of the most urgent prompts, as many as fit. Otherwise they are the most
    urgent prompt's, and also its neighbours' if it is computed whole.
    """
    prefilling = slots.prefilling
    if mixes:
        return _plan_mixed(slots, urgency, budget, max_rows)
    first = min(prefilling, key=urgency) if slots.may_overtake else prefilling[0]
    tokens = budget.tokens(first.computed)
    rows, used, place = [first], len(first.prompt_ids), prefilling.index(first)  # only whole prompts are joined
    if first.computed == 0 and used <= tokens and slots.may_overtake_all(place):
        for row in prefilling[place + 1 :]:
            used += len(row.prompt_ids)
            if row.computed or used > tokens or len(rows) == max_rows:
                break
            rows.append(row)
    return tuple([_chunk(row, slots.slot_of(row), tokens) for row in rows]), tuple(rows)


def _plan_mixed(
    slots: SlotTable, urgency: Callable[[Sequence], float], budget: Budget, max_rows: int
) -> tuple[tuple[PrefillChunk, ...], tuple[Sequence, ...]]:
    chunks: list[PrefillChunk] = []
    rows: list[Sequence] = []
    work = budget.rows
    for row in sorted(slots.prefilling, key=urgency)[:max_rows]:
        tokens = budget.beside(work, row.computed) if chunks else budget.tokens(row.computed)
        if not tokens:
            break
        chunks.append(_chunk(row, slots.slot_of(row), tokens))
        rows.append(row)
        work = work.joined(len(chunks[-1].token_ids), row.computed)
    return tuple(chunks), tuple(rows)


def _chunk(sequence: Sequence, slot: int, tokens: int) -> PrefillChunk:
    past = sequence.computed
    token_ids = sequence.prompt_ids[past : past + tokens]
    last = past + len(token_ids) == len(sequence.prompt_ids)
    return PrefillChunk(slot=slot, past=past, token_ids=token_ids, sampling=sequence.sampling if last else None)
