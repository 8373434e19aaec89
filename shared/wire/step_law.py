"""The formula for the duration of an engine step, with the coefficients that a worker has measured and reports. The
autoscaler uses it to simulate how many questions a worker like this one can answer in time."""

from msgspec import Struct

from shared.wire.fields import PredictedMs


class StepLaw(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The coefficients of `workers/schedule/costs.py` at the current pace, and the mean lengths of the requests that
    recently got a slot, in tokens; 0 if no request did. `mixes`: rows and prompts of a step are one call."""

    decode_ms: PredictedMs = 0.0
    decode_ms_per_row: PredictedMs = 0.0
    decode_ms_per_context_token: PredictedMs = 0.0
    prefill_ms: PredictedMs = 0.0
    prefill_ms_per_token: PredictedMs = 0.0
    prefill_ms_per_past_token: PredictedMs = 0.0
    prefill_ms_per_token_pair: PredictedMs = 0.0
    mixed_ms: PredictedMs = 0.0
    mixes: bool = False
    prompt_tokens: PredictedMs = 0.0
    output_tokens: PredictedMs = 0.0

    @property
    def can_be_simulated(self) -> bool:
        """Return whether a row and a prompt's token take time: else the law is of an engine that was never timed."""
        return self.decode_ms + self.decode_ms_per_row > 0.0 and self.prefill_ms_per_token > 0.0
