"""The least machine time that a request can take. Capacity and the bound are measured in it. Pure."""

from msgspec import Struct

from ops.traces.costs import EngineCosts
from ops.traces.trace import Request


class LeastWork(Struct, frozen=True, kw_only=True):
    """The least machine time on an engine with `num_slots` slots and at most `prefill_chunk_tokens` prompt tokens per
    prefill call.

    The cost of a step is divided among its rows. A row's part of a decode call is its own cost and its context's, plus
    at least 1/`num_slots` of the fixed cost of the call and the step. A prompt token's part of a prefill call is its
    own cost and its pairs', plus at least the call's fixed cost divided by the maximum number of tokens. The sum of all
    parts never exceeds the time of the steps. In a mixed call a row costs as much as a token, and has no part of the
    fixed cost.
    """

    costs: EngineCosts
    num_slots: int
    prefill_chunk_tokens: int

    def ms(self, request: Request) -> float:
        return self.prefill_ms(request) + self.decode_ms(request)

    def prefill_ms(self, request: Request) -> float:
        table, tokens = self.costs.table, request.prompt_tokens
        token_ms = table.prefill_ms_per_token + table.prefill_ms / self.prefill_chunk_tokens
        return tokens * token_ms + table.prefill_ms_per_token_pair * tokens * tokens / 2

    def decode_ms(self, request: Request) -> float:
        table = self.costs.table
        shared_ms = table.decode_ms / self.num_slots
        if table.key.mixes:
            shared_ms = min(shared_ms, table.prefill_ms_per_token - table.decode_ms_per_row)
        return self._steps_ms(request, shared_ms + self.costs.step_overhead_ms / self.num_slots)

    def alone_ms(self, request: Request) -> float:
        """Return the least time from a request's start to its end: even alone on the machine its steps run one after
        the other."""
        whole_ms = self.costs.table.decode_ms + self.costs.step_overhead_ms
        return self.prefill_ms(request) + self._steps_ms(request, whole_ms)

    def _steps_ms(self, request: Request, call_ms: float) -> float:
        """Return the time of the decode steps. A row's context is the prompt at its first step, and one token more at
        each following one."""
        table, steps = self.costs.table, request.num_decodes
        context = steps * request.prompt_tokens + steps * (steps - 1) // 2
        return steps * (table.decode_ms_per_row + call_ms) + table.decode_ms_per_context_token * context
