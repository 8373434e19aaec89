"""The least machine time that a request can take: what capacity and the bound are counted in. Pure."""

from msgspec import Struct

from ops.traces.costs import EngineCosts
from ops.traces.trace import Request


class LeastWork(Struct, frozen=True, kw_only=True):
    """On an engine with so many slots, whose prefill calls hold at most so many prompt tokens.

    A step's cost is divided among its rows: a row's part of a decode call is its own and its context's, and at least
    one part in `num_slots` of what the call and the step cost by themselves; a prompt token's part of a prefill call is
    its own and its pairs', and at least the call's by the most tokens. All parts sum to no more than the steps took. In
    a mixed call a row's own part is a token's, and it bears nothing of the call.
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
        """Return the least time from its start to its end: even with the machine to itself its steps come one by
        one."""
        whole_ms = self.costs.table.decode_ms + self.costs.step_overhead_ms
        return self.prefill_ms(request) + self._steps_ms(request, whole_ms)

    def _steps_ms(self, request: Request, call_ms: float) -> float:
        """Return the time of the steps: a row holds the prompt at its first step, and one token more at each."""
        table, steps = self.costs.table, request.num_decodes
        context = steps * request.prompt_tokens + steps * (steps - 1) // 2
        return steps * (table.decode_ms_per_row + call_ms) + table.decode_ms_per_context_token * context
