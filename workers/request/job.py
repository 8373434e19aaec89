"""A request and everything a worker knows of it, from its record to the acknowledgement of its terminal event."""

from dataclasses import dataclass, field

from shared.faq.fallback import Fallback
from shared.records.deliveries import Partition
from shared.wire.messages import Bucket, Cancel, ReplyDone
from shared.wire.outcome import Grounding, Timings, Usage
from shared.wire.requests import Order, Target
from shared.wire.session_key import SessionKey
from workers.answer.stream import Answer
from workers.prompt.conversation import Prompt
from workers.request.recent_answers import worth_telling
from workers.schedule.sequence import Sequence


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """`targets` are those that it is written for, each with the creation of the request that asked for it there last:
    its own, or one of those that asked for the same again. `owed` are those of them that have not acknowledged its end,
    `done`, yet. What was computed before was looked for in `kv_unix_ms`; from `ready_unix_ms` on it could be computed.
    One that is `decided` is answered by its `fallback`: the model is not asked. `instead` is said where nothing of what
    the model wrote can be shown; None: its `fallback`, too. `withdrawn`: nobody waits for it any more, before it ended.
    `faulty`: a fault of our own ended it. `erased`: its conversation was, before it ended."""

    order: Order
    bucket: Bucket
    sequence: Sequence
    answer: Answer
    prompt: Prompt
    fallback: Fallback
    decided: bool = False
    instead: Fallback | None = None
    kv_unix_ms: tuple[float, float] | None = None
    ready_unix_ms: float | None = None
    origins: list[tuple[Partition, int]] = field(default_factory=list)
    targets: dict[Target, int | None] = field(init=False)
    done: ReplyDone | None = field(default=None, init=False)
    owed: set[Target] = field(default_factory=set, init=False)
    withdrawn: bool = field(default=False, init=False)
    faulty: bool = field(default=False, init=False)
    erased: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.targets = {target_of(self.order): self.order.request.created_unix_ms}

    @property
    def id(self) -> str:
        return self.order.request.id

    @property
    def session(self) -> SessionKey:
        return self.order.session

    @property
    def grounding(self) -> tuple[Grounding, ...]:
        """The FAQ entries that the answer is made from."""
        return self.prompt.grounding

    def answers(self, order: Order) -> bool:
        """Return whether that is the same request, and not another one under its id."""
        mine = self.order
        return (mine.session, mine.request.input) == (order.session, order.request.input)

    @property
    def leaving(self) -> bool:
        """Return whether nothing of it is for somebody who asks for the same from now on."""
        if self.done is None:
            return self.withdrawn or self.erased
        return self.erased or not worth_telling(self.done.status, self.done.output_text)

    def asked_again(self, cancel: Cancel) -> bool:
        """Return whether the cancel is of an older request than the last that asked for it there."""
        there = cancel.reply_partition
        asked = [created for (_, partition), created in self.targets.items() if there in {None, partition}]
        return cancel.created_unix_ms is not None and bool(asked) and cancel.created_unix_ms not in asked

    def let_go(self, reply_partition: int | None) -> bool:
        """Note that nobody waits there any more (None: anywhere); return whether that was the last one. Who is not
        written for has nothing to take back."""
        left = {target: created for target, created in self.targets.items() if target[1] != reply_partition}
        if reply_partition is None or not left:
            return True
        self.targets = left
        return False

    def known_output_ids(self) -> tuple[int, ...]:
        """Return the tokens that the model decoded; none of an upstream's, of which only the text is known."""
        return () if self.prompt.messages else tuple(self.sequence.output_ids)

    def usage(self) -> Usage:
        sequence = self.sequence
        return Usage(
            input_tokens=len(sequence.prompt_ids),
            cached_tokens=sequence.prefix.restored,
            output_tokens=len(sequence.output_ids),
        )

    def timings(self) -> Timings:
        """Return the times that the worker can know; the gateway adds its own."""
        sequence = self.sequence
        started, first = sequence.first_step_unix_ms, sequence.first_token_unix_ms
        return Timings(
            queue_ms=round(started - sequence.arrived_unix_ms, 3) if started is not None else None,
            prefill_ms=round(first - started, 3) if started is not None and first is not None else None,
        )


def target_of(order: Order) -> Target:
    return (order.reply_topic, order.reply_partition)
