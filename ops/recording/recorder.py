"""What is kept of each record that passes by. Pure; it holds the awaited answers, the latest ends that nobody awaited,
and no more."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ops.recording.file import Answered, Asked, hashed
from shared.errors import ProtocolError
from shared.kafka.broker.records import Record
from shared.records.requests import Defaults, Order, open_request, settle
from shared.wire.codec import decode_reply
from shared.wire.messages import BY_MODEL, Bucket, ReplyDone

_MOST_AWAITED: Final = 100_000
_MOST_EARLY: Final = 10_000
_MOST_MS: Final = 86_400_000

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Recorder:
    """`count` gives a text's tokens; `key` makes the hashes."""

    defaults: Defaults
    count: Callable[[str], int]
    key: bytes
    requests: int = 0
    with_text: int = 0
    answers: int = 0
    unreadable: int = 0
    _began_unix_ms: float | None = None
    _last: str = ""
    _awaited: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _early: OrderedDict[str, ReplyDone] = field(default_factory=OrderedDict)

    @property
    def awaited(self) -> int:
        """Requests whose end has not passed by; of more than 100,000 the oldest are given up."""
        return len(self._awaited)

    def heard(self, record: Record, bucket: Bucket | None, now_unix_ms: float) -> list[Asked | Answered]:
        """Return what is to be written of a request of that bucket, or of an answer where that is None."""
        if bucket is None:
            entries: list[Asked | Answered | None] = [self.answered(record)]
        else:
            entries = [self.asked(record, bucket, now_unix_ms), self.overtook()]
        return [entry for entry in entries if entry is not None]

    def asked(self, record: Record, bucket: Bucket, now_unix_ms: float) -> Asked | None:
        """None for a record that no worker could serve either: it is counted."""
        arrived = record.arrived_unix_ms if record.arrived_unix_ms is not None else now_unix_ms
        try:
            request = open_request(record.value, record.headers, unreadable=record.unreadable)
            order = settle(request, self.defaults, arrived)
        except ProtocolError:
            self.unreadable += 1
            return None
        if self._began_unix_ms is None:
            self._began_unix_ms = arrived
        _keep(self._awaited, request.id, self.requests, _MOST_AWAITED)
        self._last = request.id
        consented = request.consent is not None and request.consent.training
        self.requests += 1
        self.with_text += consented
        return Asked(
            at_ms=max(0.0, arrived - self._began_unix_ms),  # another partition's may be read first
            bucket=bucket,
            tenant=hashed(self.key, order.tenant),
            session=hashed(self.key, order.tenant, request.session_id),
            input_tokens=self.count(request.input),
            max_output_tokens=order.max_output_tokens,
            first_token_ms=_relative(order, order.deadline.first_token_unix_ms),
            deadline_ms=_relative(order, order.deadline.deadline_unix_ms),
            temperature=order.temperature,
            top_p=order.top_p,
            stop=request.stop if consented else (),
            text=request.input if consented else None,
        )

    def answered(self, record: Record) -> Answered | None:
        """None for what is no end of a request that was recorded; of one that will be, see `overtook`."""
        try:
            reply = decode_reply(record.value)
        except ProtocolError:
            return None
        if not isinstance(reply, ReplyDone):
            return None
        if reply.request_id not in self._awaited:
            _keep(self._early, reply.request_id, reply, _MOST_EARLY)
            return None
        return self._answered(reply)

    def overtook(self) -> Answered | None:
        """The end of the request that was recorded last, where the reply topic was read before the request's."""
        if self._last not in self._awaited:  # it has its end; what came since is another of it
            return None
        reply = self._early.pop(self._last, None)
        return None if reply is None else self._answered(reply)

    def _answered(self, reply: ReplyDone) -> Answered:
        number = self._awaited.pop(reply.request_id)
        self.answers += 1
        ended = reply.status == "completed" or reply.reason == "max_output_tokens"
        return Answered(
            number=number,
            source=reply.source,
            whole=reply.source in BY_MODEL and ended,
            prompt_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
        )


def _keep(kept: OrderedDict[str, _T], request_id: str, what: _T, most: int) -> None:
    """A request that comes again counts as the one that came last; of more than `most` the oldest are given up."""
    kept.pop(request_id, None)
    kept[request_id] = what
    if len(kept) > most:
        kept.popitem(last=False)


def _relative(order: Order, unix_ms: int) -> int:
    return max(1, min(_MOST_MS, unix_ms - order.created_unix_ms))
