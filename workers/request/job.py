"""A request and everything a worker knows of it, from its record to the acknowledgement of its terminal event."""

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

    - `decided`: the model is not asked, the `fallback` is the answer. `instead` replaces a model's answer that the
      guard has withheld whole; None: the `fallback` does.
    - `origins` are the records that ask for it. `targets` are its readers, each with the creation of the request that
      last asked for it there; `owed` are the readers that have not acknowledged its end, `done`, yet.
    - `withdrawn`: its last reader cancelled before it ended. `faulty`: a fault of our own ended it. `erased`: its
      conversation was erased before it ended.
    - `outcome`: how the centre of this edge has ended it.
    - `kv_unix_ms`: from when to when its KV was looked for; from `ready_unix_ms` on it could be computed.
    """

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
    outcome: Outcome | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.targets = {target_of(self.order): self.order.request.created_unix_ms}

    @property
    def id(self) -> str:
        return self.order.request.id

    @property
    def revision(self) -> str:
        """Return that of the version which writes its answer."""
        return self.answer.revision

    @property
    def session(self) -> SessionKey:
        return self.order.session

    def answers(self, order: Order) -> bool:
        """Return whether that is the same request, and not another under the same id."""
        mine = self.order
        return (mine.session, mine.request.input) == (order.session, order.request.input)

    @property
    def leaving(self) -> bool:
        """Return whether a request that asks for the same from now on must be computed anew."""
        if self.done is None:
            return self.withdrawn or self.erased
        return self.erased or not worth_telling(self.done.status, self.done.output_text)

    def asked_again(self, cancel: Cancel) -> bool:
        """Return whether a later request from the same reader asks for it than the one that is cancelled."""
        there = cancel.reply_partition
        asked = [created for (_, partition), created in self.targets.items() if there in {None, partition}]
        return cancel.created_unix_ms is not None and bool(asked) and cancel.created_unix_ms not in asked

    def remove_readers(self, reply_partition: int | None) -> bool:
        """Remove the readers at a partition (None: all); return whether none would be left, and then keep them: they
        get the end."""
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
        """Return the times that the worker can know; the gateway adds its own."""
        sequence = self.sequence
        started, first = sequence.first_step_unix_ms, sequence.first_token_unix_ms
        return Timings(
            queue_ms=round(started - sequence.arrived_unix_ms, 3) if started is not None else None,
            prefill_ms=round(first - started, 3) if started is not None and first is not None else None,
        )


def target_of(order: Order) -> Target:
    return (order.reply_topic, order.reply_partition)
