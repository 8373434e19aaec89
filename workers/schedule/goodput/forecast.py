"""Forecast the duration of sequences from the cost model, recent answers' lengths, and the running sequences."""

import math
from collections.abc import Collection
from heapq import heapify, heappop
from typing import Final

from workers.schedule.goodput.queue import Item
from workers.schedule.lengths import SHOWN, OutputLengths
from workers.schedule.policy import Costs, RunningLoad
from workers.schedule.sequence import Phase, Sequence

LIKELY: Final = 0.5
AT_LEAST: Final = 0.05
"""Quantiles of an answer's length."""
HELD: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
"""Quantiles of the number of held-back tokens, for planning."""

_FORGET: Final = 0.98
# The longest sentence that is held back (`shared/faq/speech/sentences.py`: 280 characters), if each token is a letter.
_MOST_HELD: Final = 280


class Forecast:
    """Forecasts in milliseconds; each sequence that gets a slot updates it."""

    def __init__(self, costs: Costs, lengths: OutputLengths, *, num_slots: int) -> None:
        self._costs = costs
        self._lengths = lengths
        self._num_slots = num_slots
        self._num_items = 0
        self.held_quantile = HELD[-1]
        # Recent means of admitted sequences: the prefill work that a full batch has between its decode steps.
        self._prefill_ms, self._num_output, self._num_prompt = 0.0, 0.0, 0.0
        self._whole_ms = 0.0

    def item(self, sequence: Sequence) -> Item:
        num_prompt, num_output = len(sequence.prompt_ids), sequence.expected_output_tokens
        num_held = min(self.num_held(sequence.bucket, self.held_quantile), num_output - 1) if sequence.held else 0
        likely_output = sequence.output_hint or self._lengths.predict(
            sequence.bucket, sequence.max_output_tokens, LIKELY
        )
        prefill_ms = self.prefill_ms(sequence)
        slots = self._num_slots
        share_ms = self._costs.decode_ms(slots, slots * (num_prompt + likely_output // 2)) / slots
        step_ms = self.step_ms(slots)
        deadline = sequence.deadline
        self._num_items += 1
        return Item(
            sequence=sequence,
            prefill_ms=prefill_ms,
            num_held=num_held,
            num_output=num_output,
            likely_output=likely_output,
            least_output=sequence.output_hint
            or self._lengths.predict(sequence.bucket, sequence.max_output_tokens, AT_LEAST),
            cost_ms=prefill_ms + likely_output * share_ms,
            first_token_unix_ms=deadline.first_token_unix_ms,
            deadline_unix_ms=deadline.deadline_unix_ms,
            latest_start_unix_ms=min(
                deadline.first_token_unix_ms - prefill_ms - num_held * step_ms,
                deadline.deadline_unix_ms - prefill_ms - num_output * step_ms,
            ),
            order=self._num_items,
        )

    def prefill_ms(self, sequence: Sequence) -> float:
        """Return the duration of the rest of a sequence's prompt."""
        past = sequence.computed
        return self._costs.prefill_ms(len(sequence.prompt_ids) - past, past=past)

    def left(self, row: Sequence, quantile: float) -> int:
        """Return the number of tokens that a running sequence still has to write."""
        written = len(row.output_ids)
        if row.output_hint is not None:
            return max(row.output_hint - written, 1)
        return self._lengths.remaining(row.bucket, written, row.max_output_tokens, quantile)

    def left_held(self, row: Sequence, quantile: float) -> int:
        """Return the number of tokens up to and including the one with which a running sequence's first text is
        shown."""
        if not self._lengths.knows(SHOWN + row.bucket):
            return 1
        return self._lengths.remaining(SHOWN + row.bucket, len(row.output_ids), row.max_output_tokens, quantile)

    def slack_ms(self, rows: Collection[Sequence], now_unix_ms: float) -> float:
        """Return how long running rows may pause before one of them risks its deadline for its first text or its end.

        Rows that are already too late are left out.
        """
        step_ms, bare_ms = self.step_ms(len(rows)), self.bare_step_ms(len(rows))
        slack_ms = math.inf
        for row in rows:
            shown = row.shown_unix_ms is not None
            left = self.left(row, LIKELY) if shown else self.left_held(row, LIKELY) if row.held else 1
            left_ms = row.due_unix_ms - now_unix_ms
            if row.phase is Phase.PREFILL:
                left_ms -= self.prefill_ms(row)
            if left * bare_ms <= left_ms:
                slack_ms = min(slack_ms, max(0.0, left_ms - left * step_ms))
        return slack_ms

    def step_ms(self, rows: int) -> float:
        """Return the time from one token of a row to its next among `rows`: a decode step and the prompts in between.

        After a row's `n` tokens another prompt is computed, so there are `rows / n` prompts for each decode step.
        """
        rows = min(rows, self._num_slots)
        decode_ms = self._costs.decode_ms(rows, int(rows * (self._num_prompt + self._num_output / 2)))
        return decode_ms + (rows * self._prefill_ms / self._num_output if self._num_output else 0.0)

    def bare_step_ms(self, rows: int) -> float:
        """Return the minimum time of a decode step: rows with an empty context, and no prompts in between."""
        return self._costs.decode_ms(rows, 0)

    def releases(
        self, now_unix_ms: float, load: RunningLoad, step_ms: float, *, num_starts: int
    ) -> tuple[list[float], float]:
        """Return when each slot is free, as a heap, and when the prompts in slots are computed.

        If the free slots suffice for `num_starts` sequences, running rows are left out.
        """
        free = [now_unix_ms] * load.free
        prompts = now_unix_ms
        enough = num_starts <= load.free
        remaining = self._lengths.remaining
        for row in load.running:  # `left` inlined: sixty rows for each plan
            prefilling = row.phase is Phase.PREFILL
            if prefilling:
                prompts += self.prefill_ms(row)
            if enough:
                continue
            written, hint = len(row.output_ids), row.output_hint
            if hint is None:
                left = remaining(row.bucket, written, row.max_output_tokens, LIKELY)
            else:
                left = hint - written if hint > written else 1
            ends = now_unix_ms + left * step_ms
            free.append(ends + (prompts - now_unix_ms) if prefilling else ends)
        heapify(free)
        for _ in range(len(free) - load.num_slots):  # if more rows run than should, the first ones to end free no slot
            heappop(free)
        return free, prompts

    def admitted(self, item: Item) -> None:
        """Record that a sequence got a slot."""
        num_prompt = len(item.sequence.prompt_ids)
        whole_ms = self._costs.prefill_ms(num_prompt)
        if not self._num_output:
            self._prefill_ms, self._num_output = item.prefill_ms, float(item.likely_output)
            self._num_prompt, self._whole_ms = float(num_prompt), whole_ms
            return
        new = 1 - _FORGET
        self._prefill_ms += new * (item.prefill_ms - self._prefill_ms)
        self._num_output += new * (item.likely_output - self._num_output)
        self._num_prompt += new * (num_prompt - self._num_prompt)
        self._whole_ms += new * (whole_ms - self._whole_ms)

    def num_held(self, bucket: str, quantile: float) -> int:
        """Return the number of an answer's tokens before the one with which its first text is shown."""
        key = SHOWN + bucket
        if not self._lengths.knows(key):
            return 0
        return self._lengths.predict(key, _MOST_HELD, quantile) - 1

    @property
    def mean_prompt_tokens(self) -> float:
        """Return the mean length of a prompt lately; 0 before the first."""
        return self._num_prompt

    @property
    def mean_output_tokens(self) -> float:
        """Return the mean length of an answer lately; 0 before the first."""
        return self._num_output

    @property
    def mean_prefill_ms(self) -> float:
        """Return the recent mean duration of a prompt; 0 before the first."""
        return self._prefill_ms

    @property
    def mean_cold_ms(self) -> float:
        """Return by how much the mean prompt takes longer without stored KV."""
        return max(0.0, self._whole_ms - self._prefill_ms)

    @property
    def mean_cost_ms(self) -> float:
        """Return a sequence's recent mean share of the machine time of a full batch; 0 before the first."""
        return self._prefill_ms + self._num_output * self._costs.decode_ms(self._num_slots, 0) / self._num_slots
