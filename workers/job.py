"""A request and everything a worker knows of it, from its record to the acknowledgement of its terminal event."""

from dataclasses import dataclass, field

from shared.fallback import Fallback
from shared.messages import Bucket, Grounding, Timings, Usage
from shared.requests import Order
from workers.answer import Answer
from workers.conversation import Prompt
from workers.offsets import Partition
from workers.reply_publisher import Target
from workers.sequence import Sequence


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    order: Order
    bucket: Bucket
    sequence: Sequence
    answer: Answer
    prompt: Prompt
    fallback: Fallback
    origins: list[tuple[Partition, int]] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.order.request.id

    @property
    def grounding(self) -> tuple[Grounding, ...]:
        """The FAQ entries that the answer is made from."""
        return self.prompt.grounding

    @property
    def target(self) -> Target:
        return (self.order.reply_topic, self.order.reply_partition)

    def usage(self) -> Usage:
        sequence = self.sequence
        return Usage(
            input_tokens=len(sequence.prompt_ids),
            cached_tokens=sequence.restored,
            output_tokens=len(sequence.output_ids),
        )

    def timings(self) -> Timings:
        """What the worker can know; the gateway adds its own."""
        sequence = self.sequence
        started, first = sequence.first_step_unix_ms, sequence.first_token_unix_ms
        return Timings(
            queue_ms=round(started - sequence.arrived_unix_ms, 3) if started is not None else None,
            prefill_ms=round(first - started, 3) if started is not None and first is not None else None,
        )
