"""One request inside a worker, from intake to its terminal event."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import msgspec

from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket
from shared.wire.outcome import Reason, Status
from shared.wire.session_key import SessionKey
from workers.engine import Sampling
from workers.engine.kv_layout import KvPieces


class Phase(Enum):
    WAITING = auto()
    PREFILL = auto()
    DECODE = auto()
    FINISHED = auto()


_NEXT = {
    Phase.WAITING: {Phase.PREFILL, Phase.FINISHED},
    Phase.PREFILL: {Phase.DECODE, Phase.FINISHED},
    Phase.DECODE: {Phase.FINISHED},
    Phase.FINISHED: set[Phase](),
}

_NONE: Final = SessionKey("", "")


@dataclass(slots=True, kw_only=True)
class Prefix:
    """The KV of a prompt's first `num_tokens` tokens.

    Attributes:
        values: the KV until it is in the slot; None if a slot already holds it.
        loaded: tokens at the end that came from Redis.
        kept: tokens at the beginning that are in the cache or not worth storing, and are not exported.
        restored: tokens that were in the slot when the sequence got it.
        imported: those of `restored` that came from `values`.
    """

    num_tokens: int = 0
    loaded: int = 0
    kept: int = 0
    values: KvPieces | None = None
    restored: int = 0
    imported: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """The tokens of one request and how far they are computed.

    Attributes:
        computed: number of tokens whose KV is in the slot; for a waiting sequence, of those known not to need
            computing. With `n` output tokens it is `len(prompt_ids) + n - 1`, because the newest token is added in the
            next step.
        prefix: the KV that was found for it.
        shared_tokens: length of the beginning that contains no customer's text.
        shop_spans: where the shop's text is in the prompt, as starts and stops.
        held: a guard holds text back, so the first text is shown later than the first token; `shown` reports it.
        generation: the conversation's generation.
        erased: the conversation was erased before this sequence ended, so that its KV is not used again.
        prefilled_unix_ms: when each chunk of its prompt was computed.
        weight: its value to the policy; set only by the simulator.
        output_hint: its known length; set only by the simulator.
    """

    request_id: str
    prompt_ids: Ids[int]
    max_output_tokens: int
    sampling: Sampling
    deadline: Deadline
    arrived_unix_ms: float
    bucket: Bucket = "short"
    session: SessionKey = _NONE
    generation: int = 0
    shared_tokens: int = 0
    shop_spans: tuple[tuple[int, int], ...] = ()
    held: bool = False
    weight: float = field(default=1.0, init=False)
    output_hint: int | None = field(default=None, init=False)
    expected_output_tokens: int = field(default=0, init=False)
    phase: Phase = field(default=Phase.WAITING, init=False)
    computed: int = field(default=0, init=False)
    prefix: Prefix = field(default_factory=Prefix, init=False)
    erased: bool = field(default=False, init=False)
    output_ids: list[int] = field(default_factory=list, init=False)
    first_step_unix_ms: float | None = field(default=None, init=False)
    prefilled_unix_ms: list[float] = field(default_factory=list, init=False)
    first_token_unix_ms: float | None = field(default=None, init=False)
    shown_unix_ms: float | None = field(default=None, init=False)

    @property
    def begun(self) -> bool:
        """Return whether a part of the prompt was computed for it."""
        return self.computed > self.prefix.restored

    def enter(self, phase: Phase) -> None:
        """Change the phase; raise for an illegal transition, which is a bug."""
        if phase not in _NEXT[self.phase]:
            raise AssertionError(f"{self.request_id}: {self.phase.name} → {phase.name}")
        self.phase = phase

    def erase(self) -> None:
        """Record that its conversation was erased before it got a slot: it begins without KV."""
        self.erased = True
        self.begin_with(Prefix())

    def begin_with(self, prefix: Prefix) -> None:
        """Set the KV that it begins with; the rest of its prompt is computed."""
        self.prefix, self.computed = prefix, prefix.num_tokens

    @property
    def due_unix_ms(self) -> int:
        """Return the deadline for scheduling: the first text's until it is shown, then the answer's."""
        return self.deadline.first_token_unix_ms if self.shown_unix_ms is None else self.deadline.deadline_unix_ms

    def expired(self, now_unix_ms: float) -> bool:
        return self.deadline.expired(now_unix_ms, started=self.shown_unix_ms is not None)


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A sequence left the scheduler."""

    sequence: Sequence
    status: Status
    reason: Reason

    @property
    def unmet(self) -> bool:
        """Return whether its deadlines ended it."""
        return self.reason in ("deadline", "infeasible")


class Token(msgspec.Struct, frozen=True, gc=False):
    """A sequence got one more token."""

    sequence: Sequence
    token_id: int
