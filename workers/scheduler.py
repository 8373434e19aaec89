"""What the engine does next: pure, one owner, `now` a parameter.

Continuous batching over fixed slots: a sequence joins and leaves at any step. A step prefills at most
`prefill_chunk_tokens` prompt tokens and decodes one token of every decoding row, so decoding never waits for a long
prompt longer than one chunk (chunked prefill: Sarathi, arXiv 2308.16369). Slots and prefill go to the earliest deadline
first; what is cancelled or too late is out before the next step.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from workers.engine import DecodeRow, PrefillChunk
from workers.sequence import Finished, Phase, Sequence, Token
from workers.slots import Move, SlotTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One engine step: moves first, then one decode call, then one prefill call. Any part may be empty."""

    moves: tuple[Move, ...]
    prefill: tuple[PrefillChunk, ...]
    decode: tuple[DecodeRow, ...]
    prefilled: tuple[Sequence, ...]
    decoded: tuple[Sequence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    num_slots: int
    prefill_chunk_tokens: int
    max_prefill_rows: int
    stop_token_ids: frozenset[int]


class Scheduler:
    """Owns every sequence of a worker between intake and its terminal event."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self._limits = limits
        self._slots = SlotTable(limits.num_slots)
        self._waiting: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._cancelled: set[str] = set()
        self._moves: list[Move] = []

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def slot_of(self, sequence: Sequence) -> int:
        """Where a running sequence stands."""
        return self._slots.slot_of(sequence)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting or request_id in self._running

    def add(self, sequence: Sequence) -> None:
        if sequence.request_id in self:
            raise AssertionError(f"{sequence.request_id} is here already")
        self._waiting[sequence.request_id] = sequence

    def cancel(self, request_id: str) -> bool:
        """Have a sequence out before the next step; False where it is not here."""
        if request_id not in self:
            return False
        self._cancelled.add(request_id)
        return True

    def sweep(self, now_unix_ms: float) -> list[Finished]:
        """Take out what is cancelled or too late. Call before `next_step`."""
        out: list[Finished] = []
        for sequence in [*self._waiting.values(), *self._running.values()]:
            if sequence.request_id in self._cancelled:
                out.append(Finished(sequence, "cancelled", "client"))
            elif sequence.expired(now_unix_ms):
                out.append(Finished(sequence, "incomplete", "deadline"))
        for finished in out:
            self._remove(finished.sequence)
        return out

    def next_step(self, now_unix_ms: float) -> Step | None:
        """The next engine step, or None when there is nothing to compute."""
        self._admit(now_unix_ms)
        chunks, prefilled = self._plan_prefill()
        decoded = self._slots.decoding
        if not chunks and not decoded:
            return None
        rows = tuple(
            DecodeRow(slot=slot, past=row.computed, token_id=row.output_ids[-1], sampling=row.sampling)
            for slot, row in enumerate(decoded)
        )
        moves, self._moves = tuple(self._moves), []
        return Step(moves=moves, prefill=chunks, decode=rows, prefilled=prefilled, decoded=tuple(decoded))

    def complete(
        self, step: Step, prefill_tokens: Tokens[int | None], decode_tokens: Tokens[int], now_unix_ms: float
    ) -> list[Token | Finished]:
        """Take in what the engine sampled. A stop token ends a sequence and is not part of its output."""
        for sequence in step.decoded:
            sequence.computed += 1
        for sequence, chunk in zip(step.prefilled, step.prefill, strict=True):
            sequence.computed += len(chunk.token_ids)
        # Only now, with every row's length right, may rows end and others be moved.
        events: list[Token | Finished] = []
        for sequence, token_id in zip(step.decoded, decode_tokens, strict=True):
            self._append(sequence, token_id, events)
        for sequence, sampled in zip(step.prefilled, prefill_tokens, strict=True):
            if sampled is None:
                continue
            sequence.enter(Phase.DECODE)
            sequence.first_token_unix_ms = now_unix_ms
            self._moves += self._slots.promote(sequence)
            self._append(sequence, sampled, events)
        return events

    def finish_running(self) -> list[Sequence]:
        """The engine failed: what stands in its slots is not to be trusted, so every sequence there ends."""
        running = list(self._running.values())
        for sequence in running:
            self._remove(sequence)
        self._moves.clear()
        return running

    def finish(self, sequence: Sequence) -> None:
        """A sequence ends for a reason that tokens do not show: a stop string, an engine that failed."""
        self._remove(sequence)

    def _append(self, sequence: Sequence, token_id: int, events: list[Token | Finished]) -> None:
        if token_id in self._limits.stop_token_ids:
            self._remove(sequence)
            events.append(Finished(sequence, "completed", "stop"))
            return
        sequence.output_ids.append(token_id)
        events.append(Token(sequence, token_id))
        if len(sequence.output_ids) >= sequence.max_output_tokens:
            self._remove(sequence)
            events.append(Finished(sequence, "incomplete", "max_output_tokens"))

    def _remove(self, sequence: Sequence) -> None:
        self._cancelled.discard(sequence.request_id)
        sequence.enter(Phase.FINISHED)
        if self._waiting.pop(sequence.request_id, None) is None:
            del self._running[sequence.request_id]
            self._moves += self._slots.release(sequence)

    def _admit(self, now_unix_ms: float) -> None:
        """Waiting sequences take the free slots, earliest deadline first."""
        if not self._waiting or not self._slots.free:
            return
        for sequence in _by_deadline(self._waiting.values())[: self._slots.free]:
            del self._waiting[sequence.request_id]
            self._running[sequence.request_id] = sequence
            sequence.enter(Phase.PREFILL)
            sequence.first_step_unix_ms = now_unix_ms
            self._slots.take(sequence)

    def _plan_prefill(self) -> tuple[tuple[PrefillChunk, ...], tuple[Sequence, ...]]:
        """The most urgent prompt's next chunk; when it is a whole prompt, its neighbours' too while they fit."""
        prefilling = self._slots.prefilling
        if not prefilling:
            return (), ()
        budget = self._limits.prefill_chunk_tokens
        first = _by_deadline(prefilling)[0] if self._slots.may_overtake else prefilling[0]
        rows, used = [first], len(first.prompt_ids)
        if first.computed == 0 and used <= budget:
            for row in prefilling[prefilling.index(first) + 1 :]:
                used += len(row.prompt_ids)
                if row.computed or used > budget or len(rows) == self._limits.max_prefill_rows:
                    break
                rows.append(row)
        return tuple(self._chunk(row, budget) for row in rows), tuple(rows)

    def _chunk(self, sequence: Sequence, budget: int) -> PrefillChunk:
        past = sequence.computed
        token_ids = sequence.prompt_ids[past : past + budget]
        last = past + len(token_ids) == len(sequence.prompt_ids)
        return PrefillChunk(
            slot=self._slots.slot_of(sequence),
            past=past,
            token_ids=token_ids,
            sampling=sequence.sampling if last else None,
        )


def _by_deadline(sequences: Iterable[Sequence]) -> list[Sequence]:
    return sorted(sequences, key=lambda sequence: (sequence.due_unix_ms, sequence.arrived_unix_ms))
