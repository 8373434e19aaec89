"""What the engine did under a policy: of a worker from its metrics, of a simulated one as it computes. Pure."""

from collections import defaultdict
from dataclasses import dataclass

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

from ops.simulate.virtual_engine import Computed, VirtualEngine
from workers.schedule.scheduler import Step

_STEP_S = "replyline_worker_step_seconds"
_ROWS = "replyline_worker_batch_rows"


class EngineFacts(Struct, frozen=True, kw_only=True):
    """`busy`: the share of the time, from the first arrival to the run's end, in which the engine computed."""

    decode_steps: int
    mean_rows: float
    decode_ms: float
    prefill_steps: int
    prefill_ms: float
    prompt_tokens: int
    output_tokens: int
    busy: float


def facts_of_metrics(page: str, span_s: float) -> EngineFacts:
    """From a worker's `/metrics`; it served nothing but this run."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name, sample.labels.get("kind", "")] += sample.value
    decode_s, prefill_s = found[f"{_STEP_S}_sum", "decode"], found[f"{_STEP_S}_sum", "prefill"]
    decodes, prefills = found[f"{_STEP_S}_count", "decode"], found[f"{_STEP_S}_count", "prefill"]
    return EngineFacts(
        decode_steps=int(decodes),
        mean_rows=_mean(found[f"{_ROWS}_sum", ""], found[f"{_ROWS}_count", ""]),
        decode_ms=_mean(decode_s * 1_000, decodes),
        prefill_steps=int(prefills),
        prefill_ms=_mean(prefill_s * 1_000, prefills),
        prompt_tokens=int(found["replyline_worker_prompt_tokens_total", ""]),
        output_tokens=int(found["replyline_worker_output_tokens_total", ""]),
        busy=round((decode_s + prefill_s) / span_s, 4),
    )


@dataclass(slots=True)
class MeteredEngine(VirtualEngine):
    """A virtual engine that adds up what it did."""

    decode_steps: int = 0
    decoded_rows: int = 0
    decode_sum_ms: float = 0.0
    prefill_steps: int = 0
    prefill_sum_ms: float = 0.0
    prompt_tokens: int = 0
    first_tokens: int = 0

    def run(self, step: Step) -> Computed:
        computed = VirtualEngine.run(self, step)
        self.decode_steps += bool(step.decode)
        self.decoded_rows += len(step.decode)
        self.decode_sum_ms += computed.decode_ms
        self.prefill_steps += bool(step.prefill)
        self.prefill_sum_ms += computed.prefill_ms
        self.prompt_tokens += sum(len(chunk.token_ids) for chunk in step.prefill)
        self.first_tokens += sum(token is not None for token in computed.prefill_tokens)
        return computed

    def facts(self, span_s: float) -> EngineFacts:
        return EngineFacts(
            decode_steps=self.decode_steps,
            mean_rows=_mean(self.decoded_rows, self.decode_steps),
            decode_ms=_mean(self.decode_sum_ms, self.decode_steps),
            prefill_steps=self.prefill_steps,
            prefill_ms=_mean(self.prefill_sum_ms, self.prefill_steps),
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.decoded_rows + self.first_tokens,
            busy=round((self.decode_sum_ms + self.prefill_sum_ms) / 1_000 / span_s, 4),
        )


def _mean(total: float, count: float) -> float:
    return round(total / count, 3) if count else 0.0
