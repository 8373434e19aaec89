"""Predict the duration of an engine call in milliseconds: a formula measured once, times the machine's current pace.
Pure.

A decode step takes `a + b rows + c context`; a prefill call takes `a + b tokens + c past + d pairs`, where `pairs`
counts the tokens that each new token attends to: `tokens (past + tokens / (2 rows))`. On the CPU engine both are within
3 % of the measured times on average, from one token to 1,024 and from 16 to 16,000 tokens of context.

A mixed call takes as long as a prefill call with one more token for each row, plus the rows' `c context` and a
constant: it reads the weights once for prompts and rows, so that a row's products cost as much as a token's. On the
native engine this is more accurate than the sum of both formulas less a constant (error 0.06 and 0.07 on average; 0.12
and 0.17 at most).

The coefficients are a property of engine and machine, and come from calibration: a worker's own steps, which may be
alike for minutes, cannot distinguish the coefficients. Steps do show the pace, one factor for each kind of call.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Final, Self

from msgspec import Meta, Struct

from shared.wire.step_law import StepLaw
from workers.schedule.work import Work

SCHEMA_VERSION: Final = 2
SMALLEST_CONSTANT_MS: Final = 0.001

_STEP: Final = 0.1  # an average over about ten calls
_CLIP: Final = 3.0
_MEDIAN_STEP: Final = 1.15
_SMALLEST_MEDIAN: Final = 0.02
_ERROR_STEP: Final = 0.05
_LARGEST_FACTOR: Final = 1e6

_Constant = Annotated[float, Meta(ge=SMALLEST_CONSTANT_MS)]
_Coefficient = Annotated[float, Meta(ge=0)]
_Error = Annotated[float, Meta(ge=0, le=1)]


class CostsKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions under which a table of costs was measured. A table with another key is not valid for this one."""

    engine: str
    model: str
    revision: str
    precision: str
    num_slots: int
    max_length: int
    threads: int
    cpu: str
    num_cores: int
    mixes: bool = False


class CostTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The formulas' coefficients, as stored and as used by a simulated engine.

    Attributes:
        mixed_ms: the constant of a mixed call.
        error_decode: the decode formula's mean relative error over its measurements, 0 to 1; 1 without any.
        error_prefill: the prefill formula's.
    """

    schema_version: int = SCHEMA_VERSION
    key: CostsKey
    decode_ms: _Constant
    decode_ms_per_row: _Coefficient
    decode_ms_per_context_token: _Coefficient
    error_decode: _Error
    prefill_ms: _Constant
    prefill_ms_per_token: _Coefficient
    prefill_ms_per_past_token: _Coefficient
    prefill_ms_per_token_pair: _Coefficient
    error_prefill: _Error
    mixed_ms: _Coefficient = 0.0


@dataclass(frozen=True, slots=True)
class Law:
    """A formula's coefficients in the order of the module's docstring, the constant first, and their mean relative
    error."""

    coefficients: tuple[float, ...]
    error: float


PRIOR_DECODE: Final = Law((4.0, 0.8, 0.0019), error=1.0)
PRIOR_PREFILL: Final = Law((5.0, 0.47, 0.003, 0.00023), error=1.0)


class CostModel:
    """Predicts durations, and learns the pace.

    Predictions are above zero, and do not decrease as rows of one length, tokens, past or context grow.

    Attributes:
        mixes: rows and prompts of a step are one call, which takes at least as long as either part and at most as both.
    """

    __slots__ = ("_decode", "_decode_pace", "_mixed_ms", "_prefill", "_prefill_pace", "mixes")

    def __init__(self, *, decode: Law, prefill: Law, mixes: bool = False, mixed_ms: float = 0.0) -> None:
        self._decode = decode
        self._prefill = prefill
        self.mixes = mixes
        self._mixed_ms = mixed_ms
        self._decode_pace = _Pace(decode.error)
        self._prefill_pace = _Pace(prefill.error)

    @classmethod
    def prior(cls) -> Self:
        """Return costs that were not measured: those of SmolLM2-135M in 8 bits on two cores, at the pace of the
        first calls."""
        return cls(decode=PRIOR_DECODE, prefill=PRIOR_PREFILL)

    @classmethod
    def from_state(cls, table: CostTable) -> Self:
        decode = (table.decode_ms, table.decode_ms_per_row, table.decode_ms_per_context_token)
        prefill = (
            table.prefill_ms,
            table.prefill_ms_per_token,
            table.prefill_ms_per_past_token,
            table.prefill_ms_per_token_pair,
        )
        return cls(
            decode=Law(decode, table.error_decode),
            prefill=Law(prefill, table.error_prefill),
            mixes=table.key.mixes,
            mixed_ms=table.mixed_ms,
        )

    def scaled(self, ratio: float) -> "CostModel":
        """Return costs of a model whose calls take `ratio` times as long, at the current pace."""
        decode = tuple(ratio * self._decode_pace.factor * each for each in self._decode.coefficients)
        prefill = tuple(ratio * self._prefill_pace.factor * each for each in self._prefill.coefficients)
        mixed_ms = ratio * self._decode_pace.factor * self._mixed_ms
        laws = Law(decode, self.error_decode), Law(prefill, self.error_prefill)
        return CostModel(decode=laws[0], prefill=laws[1], mixes=self.mixes, mixed_ms=mixed_ms)

    def state(self, key: CostsKey) -> CostTable:
        """Return the formulas as they were given, without the pace, which may change at any moment."""
        decode, by_row, by_context = self._decode.coefficients
        prefill, by_token, by_past, by_pair = self._prefill.coefficients
        return CostTable(
            key=key,
            decode_ms=decode,
            decode_ms_per_row=by_row,
            decode_ms_per_context_token=by_context,
            error_decode=self._decode.error,
            prefill_ms=prefill,
            prefill_ms_per_token=by_token,
            prefill_ms_per_past_token=by_past,
            prefill_ms_per_token_pair=by_pair,
            error_prefill=self._prefill.error,
            mixed_ms=self._mixed_ms,
        )

    def law(self, *, prompt_tokens: float, output_tokens: float) -> StepLaw:
        """Return the laws at the present pace, with the mean lengths of requests."""
        decode, by_row, by_context = (self._decode_pace.factor * each for each in self._decode.coefficients)
        prefill, by_token, by_past, by_pair = (self._prefill_pace.factor * each for each in self._prefill.coefficients)
        return StepLaw(
            decode_ms=decode,
            decode_ms_per_row=by_row,
            decode_ms_per_context_token=by_context,
            prefill_ms=prefill,
            prefill_ms_per_token=by_token,
            prefill_ms_per_past_token=by_past,
            prefill_ms_per_token_pair=by_pair,
            mixed_ms=self._decode_pace.factor * self._mixed_ms,
            mixes=self.mixes,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )

    def decode_ms(self, rows: int, context: int) -> float:
        """Return the duration of a decode step of `rows` rows that hold `context` tokens together."""
        constant, by_row, by_context = self._decode.coefficients
        return self._decode_pace.factor * (constant + by_row * rows + by_context * context)

    def prefill_ms(self, tokens: int, *, past: int = 0, rows: int = 1) -> float:
        """Return the duration of a prefill call.

        Args:
            tokens: tokens over all rows, including padding.
            past: tokens that are already in the slot.
            rows: number of prompts.
        """
        return self._prefill_ms(Work.of_prompt(tokens, past=past, rows=rows))

    def ms(self, work: Work) -> float:
        """Return the duration of a step that computes rows, prompts, or both."""
        decode_ms = self.decode_ms(work.rows, work.context) if work.rows else 0.0
        prefill_ms = self._prefill_ms(work) if work.tokens else 0.0
        if not self.mixes or not decode_ms or not prefill_ms:
            return decode_ms + prefill_ms
        rows_ms = self._prefill_pace.factor * self._prefill.coefficients[1] * work.rows
        context_ms = self._decode_pace.factor * (self._mixed_ms + self._decode.coefficients[2] * work.context)
        return max(decode_ms, prefill_ms, min(decode_ms + prefill_ms, prefill_ms + rows_ms + context_ms))

    def observe(self, ms: float, work: Work) -> float:
        """Learn that a call took `ms`; return the milliseconds that were predicted. A mixed call changes both paces."""
        predicted_ms = self.ms(work)
        if work.rows:
            self._decode_pace.observe(ms, predicted_ms)
        if work.tokens:
            self._prefill_pace.observe(ms, predicted_ms)
        return predicted_ms

    def decode_share(self, work: Work) -> float:
        """Return the decode rows' share of a call with prompts, 0 to 1, in the ratio of the durations of both parts
        alone."""
        decode_ms = self.decode_ms(work.rows, work.context) if work.rows else 0.0
        return decode_ms / (decode_ms + self._prefill_ms(work))

    def _prefill_ms(self, work: Work) -> float:
        constant, by_token, by_past, by_pair = self._prefill.coefficients
        law_ms = constant + by_token * work.tokens + by_past * work.past + by_pair * work.pairs
        return self._prefill_pace.factor * law_ms

    @property
    def error_decode(self) -> float:
        """Return the recent error of predictions: a moving mean of |actual - predicted| / max(actual, predicted), 0
        to 1."""
        return self._decode_pace.error

    @property
    def error_prefill(self) -> float:
        """Return the recent error of prefill calls, as `error_decode`."""
        return self._prefill_pace.error


class _Pace:
    """The current pace of one kind of call: a moving mean of actual by predicted duration.

    An error counts for at most three times the running median of the errors' sizes (Huber), so that a call delayed by
    the operating system changes the factor little. If the machine itself becomes slower, the median grows and the
    factor follows.

    Args:
        error: the initial error of the formula, 0 to 1.
    """

    __slots__ = ("_median_error", "error", "factor")

    def __init__(self, error: float) -> None:
        self.factor = 1.0
        self.error = error
        self._median_error = max(error, _SMALLEST_MEDIAN)

    def observe(self, ms: float, predicted_ms: float) -> None:
        """Learn a call's duration; a value that is not a duration is ignored."""
        if not 0.0 < ms < math.inf:
            return
        # Relative to the larger value, twice and half the duration are equally wrong, and no error exceeds 1.
        error = (ms - predicted_ms) / max(ms, predicted_ms)
        size = abs(error)
        self.error += _ERROR_STEP * (size - self.error)
        median = self._median_error
        limit = _CLIP * median
        factor = self.factor * (1.0 + _STEP * max(-limit, min(error, limit)))
        self.factor = max(1 / _LARGEST_FACTOR, min(factor, _LARGEST_FACTOR))
        median *= _MEDIAN_STEP if size > median else 1 / _MEDIAN_STEP
        self._median_error = max(_SMALLEST_MEDIAN, min(median, 1.0))
