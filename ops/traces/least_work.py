"""A lower bound of the machine time that each request of a trace needs, from the engine's measured costs. Pure.

The simulator uses it in two places: capacity, in requests per second, is one second divided by the mean of these times;
and no schedule can answer more requests than fit into the available time at this cost each.
"""

from msgspec import Struct

from ops.traces.costs import EngineCosts
from ops.traces.trace import Request


class LeastWork(Struct, frozen=True, kw_only=True):
    """Computes the bound for an engine that decodes up to `num_slots` sequences together.

    A call serves several requests, so its time is divided among them. A request's part of a decode call is the cost of
    its row and of its context (the tokens before), plus a part of the call's fixed cost: at least 1/`num_slots`, as a
    call has at most that many rows. Its part of a prefill call is the cost of its prompt tokens, plus for each token at
    least 1/`prefill_chunk_tokens` of the fixed cost. The parts of all requests never add up to more than the time that
    the calls take, so the result is a lower bound. If one call computes rows and prompts together (`table.key.mixes`),
    a row costs as much as a prompt token and pays no fixed cost.

    Attributes:
        costs: measured times of one decode call and one prefill call, in ms
        num_slots: maximum sequences in one decode call
        prefill_chunk_tokens: maximum prompt tokens in one prefill call
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
        """Return the least time in ms from a request's start to its last token on an otherwise idle machine. Each of
        its tokens needs a decode call, calls follow one another, and each pays the whole fixed cost."""
        whole_ms = self.costs.table.decode_ms + self.costs.step_overhead_ms
        return self.prefill_ms(request) + self._steps_ms(request, whole_ms)

    def _steps_ms(self, request: Request, call_ms: float) -> float:
        """Return the time of the decode steps. A row's context is the prompt at its first step, and one token more at
        each following one."""
        table, steps = self.costs.table, request.num_decodes
        context = steps * request.prompt_tokens + steps * (steps - 1) // 2
        return steps * (table.decode_ms_per_row + call_ms) + table.decode_ms_per_context_token * context
