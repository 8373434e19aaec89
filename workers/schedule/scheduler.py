"""Decide what the engine does next: pure, one owner, `now` a parameter.

Continuous batching over fixed slots: a sequence joins and leaves at any step. A step decodes one token of every
decoding row and prefills a chunk of prompt small enough that decoding stalls no longer than its budget (chunked
prefill: Sarathi, arXiv 2308.16369). Who gets a slot, and who is given up, is the policy's choice; what is cancelled,
too late or given up is out before the next step. A slot is given no sooner than its prompt can be computed, so that
the choice is made with all that is known by then.
"""

import heapq
from collections.abc import Collection
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from itertools import count
from typing import Final

from shared.wire.session_key import SessionKey
from workers.engine import DecodeRow, PrefillChunk
from workers.schedule.lengths import SHOWN
from workers.schedule.outlook import Outlook
from workers.schedule.policy import Costs, Lengths, Load, Policy
from workers.schedule.prefixes import SlotPrefixes
from workers.schedule.sequence import Finished, Phase, Sequence, Token
from workers.schedule.slots import Export, Import, Move, SlotTable, Transfer

_CHUNK_GRAIN: Final = 16
# Of the length of an answer, as it is planned with: of a hundred three turn out longer. While a class is unknown its
# answers are hoped to be short: of a class that seems to be out of reach nothing would ever be learned.
_LENGTH_QUANTILE: Final = 0.97
_HOPED_QUANTILE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One engine step: transfers of KV in their order, one decode call, one prefill call. Any part may be empty.

    `prefilled` and `decoded` are the sequences of the chunks and of the decode rows.
    """

    transfers: tuple[Transfer, ...]
    prefill: tuple[PrefillChunk, ...]
    decode: tuple[DecodeRow, ...]
    prefilled: tuple[Sequence, ...]
    decoded: tuple[Sequence, ...]


DECODE_STALL_MS: Final = 160.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """`max_running_tokens` bounds prompts and answers in the slots together; `decode_stall_ms` what a prefill chunk may
    take while others decode (0: a whole chunk). `reuse_kv`: prompts begin with what stands in a slot or came with them,
    and what was computed of a sequence is exported at its end."""

    num_slots: int
    prefill_chunk_tokens: int
    max_prefill_rows: int
    stop_token_ids: frozenset[int]
    max_running_tokens: int = 1_000_000
    decode_stall_ms: float = 0.0
    reuse_kv: bool = False


class Scheduler:
    """Owns every sequence of a worker between intake and its terminal event."""

    def __init__(self, limits: SchedulerLimits, policy: Policy, *, costs: Costs, lengths: Lengths) -> None:
        self._limits = limits
        self._policy = policy
        self._costs = costs
        self._lengths = lengths
        self._slots = SlotTable(limits.num_slots)
        self._waiting: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._running_tokens = 0
        self._load = Load(limits.num_slots, self._running.values())
        self._due: list[tuple[int, int, Sequence]] = []
        self._order = count()
        self._next: Sequence | None = None  # taken, and too big for the tokens that are free
        self._cancelled: dict[str, None] = {}  # in order: the same events give the same steps
        self._transfers: list[Transfer] = []
        self._prefixes = SlotPrefixes()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def slot_of(self, sequence: Sequence) -> int:
        """Return the slot of a running sequence."""
        return self._slots.slot_of(sequence)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting or request_id in self._running

    def add(self, sequence: Sequence, now_unix_ms: float) -> None:
        if sequence.request_id in self:
            raise AssertionError(f"{sequence.request_id} is here already")
        quantile = _LENGTH_QUANTILE if self._lengths.knows(sequence.bucket) else _HOPED_QUANTILE
        sequence.expected_output_tokens = sequence.output_hint or self._lengths.predict(
            sequence.bucket, sequence.max_output_tokens, quantile
        )
        self._waiting[sequence.request_id] = sequence
        heapq.heappush(self._due, (sequence.deadline.first_token_unix_ms, next(self._order), sequence))
        self._policy.add(sequence, now_unix_ms)

    def cancel(self, request_id: str) -> bool:
        """Have a sequence out before the next step; False where it is not here."""
        if request_id not in self:
            return False
        self._cancelled[request_id] = None
        return True

    def shown(self, sequence: Sequence, now_unix_ms: float) -> None:
        """Note that the first text of a running sequence that holds it back is shown with its newest token."""
        sequence.shown_unix_ms = now_unix_ms
        if sequence.phase is not Phase.FINISHED:  # else its end has told
            self._lengths.observe(SHOWN + sequence.bucket, max(len(sequence.output_ids), 1), ended_by_itself=True)

    def sweep(self, now_unix_ms: float) -> list[Finished]:
        """Take out what is cancelled, too late, or given up. Call before `next_step`."""
        out = [Finished(self._find(request_id), "cancelled", "client") for request_id in self._cancelled]
        for finished in out:
            self._remove(finished.sequence)
        late = [Finished(sequence, "incomplete", "deadline") for sequence in self._late(now_unix_ms)]
        for finished in late:
            self._remove(finished.sequence, missed=True)
        given_up = self._policy.give_up(now_unix_ms, self._load)
        for sequence in given_up:
            self._remove(sequence, missed=True)
        out += late
        out += [Finished(sequence, "incomplete", "infeasible") for sequence in given_up]
        return out

    def next_step(self, now_unix_ms: float) -> Step | None:
        """Return the next engine step, or None when there is nothing to compute."""
        self._admit(now_unix_ms)
        chunks, prefilled = self._plan_prefill()
        for chunk in chunks:  # a row with nothing computed may have closed a gap without a move
            self._prefixes.overwrite(chunk.slot)
        decoding = self._slots.decoding
        if not chunks and not decoding and not (self._limits.reuse_kv and self._transfers):
            return None
        rows = tuple(
            [
                DecodeRow(
                    slot=slot,
                    past=row.computed,
                    token_id=row.output_ids[-1] if row.output_ids else 0,
                    sampling=row.sampling,
                )
                for slot, row in enumerate(decoding)
            ]
        )
        transfers, self._transfers = tuple(self._transfers), []
        return Step(transfers=transfers, prefill=chunks, decode=rows, prefilled=prefilled, decoded=tuple(decoding))

    def wake_unix_ms(self) -> float | None:
        """When `next_step` may have a step though it had none and nothing has happened since."""
        return self._policy.wake_unix_ms() if self._waiting else None

    def complete(
        self, step: Step, prefill_tokens: Tokens[int | None], decode_tokens: Tokens[int], now_unix_ms: float
    ) -> list[Token | Finished]:
        """Take in what the engine sampled. A stop token ends a sequence and is not part of its output."""
        for sequence in step.decoded:
            sequence.computed += 1
        for sequence, chunk in zip(step.prefilled, step.prefill, strict=True):
            sequence.computed += len(chunk.token_ids)
            sequence.prefilled_unix_ms.append(now_unix_ms)
        # Only now, with every row's length right, may rows end and others be moved.
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

    def outlook(self, now_unix_ms: float) -> Outlook | None:
        """Return what a request that came now could expect; None where the policy does not look ahead."""
        return self._policy.outlook(now_unix_ms, self._load)

    def finish_running(self) -> list[Sequence]:
        """End every running sequence: the engine failed, and what stands in its slots is not to be trusted."""
        running = list(self._running.values())
        for sequence in running:
            self._remove(sequence, failed=True)
        self._transfers.clear()
        self._prefixes.clear()
        return running

    def drop(self, sequence: Sequence) -> None:
        """Drop a sequence by a fault in its answer; one that has ended by itself already stays so."""
        if sequence.phase is not Phase.FINISHED and sequence.request_id in self:
            self._remove(sequence, failed=True)

    def rows_in(self, slots: Collection[int]) -> list[Sequence]:
        """Return the sequences in these slots, as they stand until `complete`."""
        return [self._slots.rows[slot] for slot in slots if slot < self._slots.used]

    def forget(self, session: SessionKey) -> None:
        """Forget a conversation that was erased: no prompt begins with what was computed of it, here or elsewhere."""
        self._prefixes.forget(session)
        for row in self._running.values():
            row.erased = row.erased or row.session == session
        for sequence in self._waiting.values():
            if sequence.session == session:
                sequence.erase()

    def standing(self) -> dict[SessionKey, Tokens[int]]:
        """Return the tokens of conversations whose KV a slot still holds, for their next prompts."""
        return self._prefixes.standing()

    def finish(self, sequence: Sequence) -> None:
        """Finish a sequence for a reason that tokens do not show: a stop string."""
        self._remove(sequence, ended_by_itself=True)

    # --- who leaves

    def _find(self, request_id: str) -> Sequence:
        return self._waiting.get(request_id) or self._running[request_id]

    def _late(self, now_unix_ms: float) -> list[Sequence]:
        late: list[Sequence] = []
        for row in self._running.values():  # `Sequence.expired`, without the calls: 64 rows a step
            shown, deadline = row.shown_unix_ms is not None, row.deadline
            if now_unix_ms >= (deadline.deadline_unix_ms if shown else deadline.first_token_unix_ms):
                late.append(row)
        while self._due and self._due[0][0] <= now_unix_ms:
            _, _, sequence = heapq.heappop(self._due)
            if sequence.phase is Phase.WAITING:
                late.append(sequence)
        return late

    def _append(self, sequence: Sequence, token_id: int, events: list[Token | Finished]) -> None:
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

    def _remove(
        self, sequence: Sequence, *, ended_by_itself: bool = False, missed: bool = False, failed: bool = False
    ) -> None:
        self._cancelled.pop(sequence.request_id, None)
        sequence.enter(Phase.FINISHED)
        sequence.prefix.values = None
        if self._waiting.pop(sequence.request_id, None) is not None:
            if sequence is self._next:
                self._next = None
            self._policy.discard(sequence)
            return
        del self._running[sequence.request_id]
        self._running_tokens -= _tokens(sequence)
        self._policy.ended(sequence, missed=missed)
        if sequence.output_ids or ended_by_itself:
            num_output = len(sequence.output_ids) + ended_by_itself
            self._lengths.observe(sequence.bucket, num_output, ended_by_itself=ended_by_itself)
            if sequence.shown_unix_ms is None:  # what was held back is shown with its end
                whole = ended_by_itself or num_output >= sequence.max_output_tokens
                self._lengths.observe(SHOWN + sequence.bucket, num_output, ended_by_itself=whole)
        self._release(sequence, keep=not failed)

    def _release(self, sequence: Sequence, *, keep: bool) -> None:
        """Free a slot; before another's KV comes there, what was computed is exported."""
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

    # --- who comes in

    def _admit(self, now_unix_ms: float) -> None:
        """Free slots are taken as long as one step can compute what is not begun; a begun prompt may be overtaken."""
        if not self._waiting:
            return
        unread = sum([len(row.prompt_ids) - row.computed for row in self._slots.prefilling if not row.begun])
        while self._slots.free and unread < self._limits.prefill_chunk_tokens:
            sequence = self._next or self._policy.take(now_unix_ms, self._load)
            self._next = sequence
            if sequence is None:
                return
            if self._running and self._running_tokens + _tokens(sequence) > self._limits.max_running_tokens:
                return
            self._next = None
            del self._waiting[sequence.request_id]
            self._running[sequence.request_id] = sequence
            self._running_tokens += _tokens(sequence)
            sequence.enter(Phase.PREFILL)
            sequence.first_step_unix_ms = now_unix_ms
            self._restore(sequence, self._slots.take(sequence))
            unread += len(sequence.prompt_ids) - sequence.computed

    def _restore(self, sequence: Sequence, slot: int) -> None:
        """Begin with what is computed already: the longer of what a slot holds and what came with the sequence. Of a
        prompt whose every token is there the last is computed once more: its logits are wanted."""
        if not self._limits.reuse_kv:
            return
        most, prefix = len(sequence.prompt_ids) - 1, sequence.prefix
        values = prefix.values
        brought = values.num_tokens if values is not None else 0
        standing = self._prefixes.longest(sequence, slot, self._slots.rows)
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

    # --- what is computed of the prompts

    def _plan_prefill(self) -> tuple[tuple[PrefillChunk, ...], tuple[Sequence, ...]]:
        """Return the most urgent prompt's next chunk; when it is a whole prompt, its neighbours' too while they fit."""
        prefilling = self._slots.prefilling
        if not prefilling:
            return (), ()
        first = min(prefilling, key=self._policy.urgency) if self._slots.may_overtake else prefilling[0]
        budget = self._budget(first.computed)
        rows, used, place = [first], len(first.prompt_ids), prefilling.index(first)  # whole prompts alone are joined
        if first.computed == 0 and used <= budget and self._slots.may_overtake_all(place):
            for row in prefilling[place + 1 :]:
                used += len(row.prompt_ids)
                if row.computed or used > budget or len(rows) == self._limits.max_prefill_rows:
                    break
                rows.append(row)
        return tuple([self._chunk(row, budget) for row in rows]), tuple(rows)

    def _budget(self, past: int) -> int:
        """Return how many prompt tokens may be computed in this step."""
        limits = self._limits
        if not limits.decode_stall_ms or not self._slots.decoding:
            return limits.prefill_chunk_tokens
        low, high = 1, max(limits.prefill_chunk_tokens // _CHUNK_GRAIN, 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self._costs.prefill_ms(middle * _CHUNK_GRAIN, past=past) <= limits.decode_stall_ms:
                low = middle
            else:
                high = middle - 1
        return min(low * _CHUNK_GRAIN, limits.prefill_chunk_tokens)

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


def _tokens(sequence: Sequence) -> int:
    return len(sequence.prompt_ids) + sequence.max_output_tokens
