"""A request as the worker holds it in memory: the record, the deadline, the prompt, and who waits for the answer, from
the time it is read until Kafka has acknowledged its terminal event."""

from dataclasses import dataclass, field

from shared.faq.fallback import Fallback
from shared.records.deliveries import Partition
from shared.wire.messages import Bucket, Cancel, ReplyDone
from shared.wire.outcome import Outcome, Timings, Usage
from shared.wire.requests import Order, Target
from shared.wire.session_key import SessionKey
from workers.answer.stream import Answer
from workers.prompt.conversation import Prompt
from workers.request.recent_answers import worth_telling
from workers.schedule.sequence import Sequence


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """A request that a worker answers.

    Attributes:
        decided: the model is not asked; `fallback` is the answer.
        instead: replaces a model's answer that the guard has withheld entirely; None to use `fallback`.
        quoted: replaces it if the model wrote that it does not know the answer; None to use `instead`.
        kv_unix_ms: when the search for its KV began and ended.
        ready_unix_ms: when it was ready to be computed.
        turns_missing: the history did not return all turns in time.
        origins: the records that ask for it.
        targets: its readers, each with the creation time of the last request for it from there.
        done: its terminal event.
        owed: readers that have not acknowledged the terminal event.
        withdrawn: its last reader cancelled before it ended.
        faulty: an internal fault ended it.
        erased: its conversation was erased before it ended.
        outcome: how the edge's centre ended it.
    """

    order: Order
    bucket: Bucket
    sequence: Sequence
    answer: Answer
    prompt: Prompt
    fallback: Fallback
    decided: bool = False
    instead: Fallback | None = None
    quoted: Fallback | None = None
    kv_unix_ms: tuple[float, float] | None = None
    ready_unix_ms: float | None = None
    turns_missing: bool = False
    origins: list[tuple[Partition, int]] = field(default_factory=list)
    targets: dict[Target, int | None] = field(init=False)
    done: ReplyDone | None = field(default=None, init=False)
    owed: set[Target] = field(default_factory=set, init=False)
    withdrawn: bool = field(default=False, init=False)
    faulty: bool = field(default=False, init=False)
    erased: bool = field(default=False, init=False)
    outcome: Outcome | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.targets = {target_of(self.order): self.order.request.created_unix_ms}

    @property
    def id(self) -> str:
        return self.order.request.id

    @property
    def revision(self) -> str:
        """Return the version that writes its answer."""
        return self.answer.revision

    @property
    def session(self) -> SessionKey:
        return self.order.session

    def answers(self, order: Order) -> bool:
        """Return whether `order` is the same request, not another one with the same id."""
        mine = self.order
        return (mine.session, mine.request.input) == (order.session, order.request.input)

    @property
    def leaving(self) -> bool:
        """Return whether a new request for the same answer must be computed again."""
        if self.done is None:
            return self.withdrawn or self.erased
        return self.erased or not worth_telling(self.done.status, self.done.output_text)

    def asked_again(self, cancel: Cancel) -> bool:
        """Return whether the same reader has asked for it again since the cancelled request."""
        there = cancel.reply_partition
        asked = [created for (_, partition), created in self.targets.items() if there in {None, partition}]
        return cancel.created_unix_ms is not None and bool(asked) and cancel.created_unix_ms not in asked

    def remove_readers(self, reply_partition: int | None) -> bool:
        """Remove the readers at a partition, or all for None; return whether none is left.

        In that case they are kept, since they get the end.
        """
        left = {target: created for target, created in self.targets.items() if target[1] != reply_partition}
        if reply_partition is None or not left:
            return True
        self.targets = left
        return False

    def usage(self) -> Usage:
        sequence = self.sequence
        return Usage(
            input_tokens=len(sequence.prompt_ids),
            cached_tokens=sequence.prefix.restored,
            output_tokens=len(sequence.output_ids),
        )

    def timings(self) -> Timings:
        """Return the times that the worker knows; the gateway adds its own."""
        sequence = self.sequence
        started, first = sequence.first_step_unix_ms, sequence.first_token_unix_ms
        return Timings(
            queue_ms=round(started - sequence.arrived_unix_ms, 3) if started is not None else None,
            prefill_ms=round(first - started, 3) if started is not None and first is not None else None,
        )


def target_of(order: Order) -> Target:
    return (order.reply_topic, order.reply_partition)
