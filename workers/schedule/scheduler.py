"""Decide what the engine does next. Pure, with one owner; the time is a parameter.

Continuous batching over fixed slots: a sequence may join and leave at any step. A step decodes one token of every
decoding row and computes a part of the prompts (`prefill.py`). The policy chooses which sequence gets a slot and which
one is given up (`roster.py`). A slot is assigned only when its prompt can be computed, so that the choice uses the
latest information.
"""

import math
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from shared.settings import SpeculationKind
from shared.wire.session_key import SessionKey
from workers.engine import DecodeRow, PrefillChunk
from workers.schedule.lengths import OutputLengths
from workers.schedule.policy import Costs, Policy
from workers.schedule.prefill import Budget, plan_prefill
from workers.schedule.prefixes import SlotPrefixes
from workers.schedule.roster import Roster
from workers.schedule.sequence import Finished, Phase, Sequence, Token
from workers.schedule.slots import Export, Import, Move, SlotTable, StandingSlots, Transfer
from workers.schedule.speculation.speculation import Source, Speculation
from workers.schedule.work import Work

DECODE_STALL_MS: Final = 160.0
# A chunk takes at least this many times as long as a single token, so that prompts do not wait for tiny calls.
_WORTH_CALLS: Final = 4.0


class EngineStep(Struct, frozen=True, kw_only=True, gc=False):
    """One engine step: KV transfers in order, then decode rows and prompt chunks, in any order or in one call.

    Any part may be empty. `prefilled` and `decoded` are the sequences of the chunks and of the decode rows. `sources`:
    where each row's proposed tokens come from, empty if no row has any.
    """

    transfers: tuple[Transfer, ...]
    prefill: tuple[PrefillChunk, ...]
    decode: tuple[DecodeRow, ...]
    prefilled: tuple[Sequence, ...]
    decoded: tuple[Sequence, ...]
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """The scheduler's limits.

    Attributes:
        max_running_tokens: limit for the prompts and answers in all slots together.
        decode_stall_ms: maximum duration of a prefill chunk while others decode; 0 for a whole chunk.
        reuse_kv: prompts begin with KV from a slot or the cache, and a sequence's KV is exported at its end.
        mixes: a step may compute chunks of any prompts.
        speculation: where a step without prompts looks tokens up to verify them; "off" without `mixes`.
    """

    num_slots: int
    prefill_chunk_tokens: int
    max_prefill_rows: int
    stop_token_ids: frozenset[int]
    max_running_tokens: int = 1_000_000
    decode_stall_ms: float = 0.0
    reuse_kv: bool = False
    mixes: bool = False
    speculation: SpeculationKind = "off"


class Scheduler(Roster):
    """A roster over the slots of an engine that computes in steps."""

    def __init__(self, limits: SchedulerLimits, policy: Policy, *, costs: Costs, lengths: OutputLengths) -> None:
        super().__init__(policy, lengths=lengths, num_slots=limits.num_slots)
        self._limits = limits
        self._costs = costs
        self._slots = (StandingSlots if limits.mixes else SlotTable)(limits.num_slots)
        self._running_tokens = 0
        self._next: Sequence | None = None  # admitted, but with more tokens than are free
        self._transfers: list[Transfer] = []
        self._prefixes = SlotPrefixes()
        self._speculation = None
        if limits.speculation != "off":
            shares = limits.speculation == "tenant"
            self._speculation = Speculation(costs, limits.stop_token_ids, shares_answers=shares)

    def next_step(self, now_unix_ms: float) -> EngineStep | None:
        """Return the next engine step; None if there is nothing to compute."""
        self._admit(now_unix_ms)
        decoding = self._slots.decoding
        rows = tuple(
            [
                DecodeRow(
                    slot=slot,
                    past=row.computed,
                    token_id=row.output_ids[-1] if row.output_ids else 0,
                    sampling=row.sampling,
                )
                for slot, row in self._slots.placed()[: len(decoding)]
            ]
        )
        chunks, prefilled = self._plan_prefill(rows, now_unix_ms) if self._slots.prefilling else ((), ())
        for chunk in chunks:  # a row without computed tokens may have closed a gap without a move
            self._prefixes.overwrite(chunk.slot)
        if not chunks and not decoding and not (self._limits.reuse_kv and self._transfers):
            return None
        sources: tuple[Source, ...] = ()
        if self._speculation is not None and not chunks:
            rows, sources = self._speculation.propose(rows, decoding)
        transfers, self._transfers = tuple(self._transfers), []
        return EngineStep(
            transfers=transfers,
            prefill=chunks,
            decode=rows,
            prefilled=prefilled,
            decoded=tuple(decoding),
            sources=sources,
        )

    def complete(
        self, step: EngineStep, prefill_tokens: Tokens[int | None], decode_tokens: Tokens[int], now_unix_ms: float
    ) -> list[Token | Finished]:
        """Add the sampled tokens. A stop token ends a sequence and is not part of its output."""
        for sequence in step.decoded:
            sequence.computed += 1
        for sequence, chunk in zip(step.prefilled, step.prefill, strict=True):
            sequence.computed += len(chunk.token_ids)
            sequence.prefilled_unix_ms.append(now_unix_ms)
        # Rows may end and others move only now, when every row's length is right.
        events: list[Token | Finished] = []
        for sequence, token_id in zip(step.decoded, decode_tokens, strict=True):
            self._append(sequence, token_id, events)
        for sequence, sampled in zip(step.prefilled, prefill_tokens, strict=True):
            if sampled is None:
                continue
            sequence.enter(Phase.DECODE)
            sequence.first_token_unix_ms = now_unix_ms
            if not sequence.held:
                self.shown(sequence, now_unix_ms)
            self._move(self._slots.promote(sequence))
            self._append(sequence, sampled, events)
        return events

    def add_accepted(self, step: EngineStep, verified: Tokens[Tokens[int]], place: int) -> list[Token | Finished]:
        """Add the token that each row has at this place of those that a step with proposals returned.

        Call this after `complete` for place 1, then 2 and so on, so that a row that has ended gets no more.
        """
        events: list[Token | Finished] = []
        for sequence, tokens in zip(step.decoded, verified, strict=True):
            if place < len(tokens) and sequence.phase is Phase.DECODE:
                sequence.computed += 1
                self._append(sequence, tokens[place], events)
        return events

    def finish_running(self) -> list[Sequence]:
        """End every running sequence after an engine failure, since the KV in the slots may be wrong."""
        running = list(self._running.values())
        for sequence in running:
            self._remove(sequence, failed=True)
        self._transfers.clear()
        self._prefixes.clear()
        return running

    def rows_in(self, slots: Collection[int]) -> list[Sequence]:
        """Return the sequences in these slots, as assigned until `complete`."""
        return [row for slot, row in self._slots.placed() if slot in slots]

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation: no prompt begins with its KV, here or elsewhere."""
        self._prefixes.forget(session)
        if self._speculation is not None:
            self._speculation.forget(session)
        super().forget(session)

    def standing(self) -> dict[SessionKey, Tokens[int]]:
        """Return the tokens of conversations whose KV is still in a slot, for their next prompts."""
        return self._prefixes.standing()

    # --- leaving sequences

    def _remove(
        self, sequence: Sequence, *, ended_by_itself: bool = False, missed: bool | None = False, failed: bool = False
    ) -> bool:
        if sequence is self._next:
            self._next = None
        ran = super()._remove(sequence, ended_by_itself=ended_by_itself, missed=missed, failed=failed)
        if ran:
            self._running_tokens -= _tokens(sequence)
            if self._speculation is not None:
                self._speculation.ended(sequence, keep=ended_by_itself)
            self._release(sequence, keep=not failed)
        return ran

    def _append(self, sequence: Sequence, token_id: int, events: list[Token | Finished]) -> None:
        if self._speculation is not None:
            self._speculation.appended(sequence, token_id)
        if token_id in self._limits.stop_token_ids:
            self._remove(sequence, ended_by_itself=True)
            events.append(Finished(sequence, "completed", "stop"))
            return
        output_ids = sequence.output_ids
        output_ids.append(token_id)
        events.append(Token(sequence, token_id))
        if len(output_ids) >= sequence.max_output_tokens:
            self._remove(sequence)
            events.append(Finished(sequence, "incomplete", "max_output_tokens"))

    def _release(self, sequence: Sequence, *, keep: bool) -> None:
        """Free a slot; its KV is exported before another sequence overwrites it."""
        slot = self._slots.slot_of(sequence)
        keep = keep and self._limits.reuse_kv and not sequence.erased and sequence.first_token_unix_ms is not None
        if keep and sequence.computed > sequence.prefix.kept:
            self._transfers.append(Export(sequence, slot, start=sequence.prefix.kept, stop=sequence.computed))
        if keep:
            self._prefixes.leave(slot, sequence)
        self._move(self._slots.release(sequence))

    def _move(self, moves: Tokens[Move]) -> None:
        self._transfers += moves
        for move in moves:
            self._prefixes.overwrite(move.target)

    # --- new sequences

    def _admit(self, now_unix_ms: float) -> None:
        """Fill free slots while one step can compute the prompts that have not begun. A prompt that has begun may be
        overtaken."""
        if not self._waiting:
            return
        unread = sum([len(row.prompt_ids) - row.computed for row in self._slots.prefilling if not row.begun])
        while self._slots.free and unread < self._limits.prefill_chunk_tokens:
            sequence = self._next or self._policy.admit(now_unix_ms, self._load)
            self._next = sequence
            if sequence is None:
                return
            if self._running and self._running_tokens + _tokens(sequence) > self._limits.max_running_tokens:
                return
            self._next = None
            self._run(sequence, now_unix_ms)
            self._running_tokens += _tokens(sequence)
            slot = self._prefixes.choose(sequence, self._slots.open)
            self._slots.assign(sequence, slot)
            self._restore(sequence, slot)
            unread += len(sequence.prompt_ids) - sequence.computed

    def _restore(self, sequence: Sequence, slot: int) -> None:
        """Begin with computed KV: the longer one of a slot's and the one that came with the sequence.

        If every token of a prompt is there, the last one is computed again, because its logits are needed.
        """
        if not self._limits.reuse_kv:
            return
        most, prefix = len(sequence.prompt_ids) - 1, sequence.prefix
        values = prefix.values
        brought = values.num_tokens if values is not None else 0
        standing = self._prefixes.longest(sequence, slot, self._slots.placed())
        if standing is not None and standing.length >= brought:
            sequence.computed = min(standing.length, most)
            if standing.slot != slot:
                self._transfers.append(Move(standing.slot, slot, sequence.computed))
        else:
            start = self._prefixes.in_place(sequence, slot)
            sequence.computed = min(brought, most)
            if values is not None and start < sequence.computed:
                self._transfers += [Import(slot, at, part) for at, part in values.between(start, sequence.computed)]
                prefix.imported = sequence.computed - start
        prefix.values, prefix.restored = None, sequence.computed
        self._prefixes.overwrite(slot)

    def _plan_prefill(
        self, rows: Tokens[DecodeRow], now_unix_ms: float
    ) -> tuple[tuple[PrefillChunk, ...], tuple[Sequence, ...]]:
        """Return the prompt chunks of a step with these decode rows."""
        limits = self._limits
        return plan_prefill(
            self._slots,
            self._policy.urgency,
            budget=self._budget(rows, now_unix_ms),
            max_rows=limits.max_prefill_rows,
            mixes=limits.mixes,
        )

    def _budget(self, rows: Tokens[DecodeRow], now_unix_ms: float) -> Budget:
        """Return the limit for prompt tokens in a step with these decode rows.

        The rows may be delayed as long as their deadlines allow, unless a prompt has even less time, but long enough
        for a worthwhile call.
        """
        limits, work, stall_ms = self._limits, Work.of_rows(rows), math.inf
        if limits.decode_stall_ms and rows:
            stall_ms = limits.decode_stall_ms
            slack_ms = self._policy.slack_ms(self._slots.decoding, now_unix_ms)
            if slack_ms < min(stall_ms, self._policy.slack_ms(self._slots.prefilling, now_unix_ms)):
                call_ms = self._costs.ms(work.joined(1, 0)) - self._costs.ms(work)
                stall_ms = min(stall_ms, max(slack_ms, _WORTH_CALLS * call_ms))
        return Budget(self._costs, work, limits.prefill_chunk_tokens, stall_ms)


def _tokens(sequence: Sequence) -> int:
    return len(sequence.prompt_ids) + sequence.max_output_tokens
