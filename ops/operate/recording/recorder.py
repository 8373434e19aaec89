"""Extract from each request the data that a replay needs. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ops.operate.recording.file import RecordedRequest, hashed
from shared.conversation.corrections import must_go
from shared.errors import ProtocolError
from shared.kafka.broker.records import Record
from shared.wire.messages import Bucket, Forgotten
from shared.wire.requests import Defaults, Order, open_request, settle
from shared.wire.session_key import SessionKey

_MOST_MS: Final = 86_400_000


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Makes the entries of a recording. `count` returns a text's tokens; `key` is the key of the hashes."""

    defaults: Defaults
    count: Callable[[str], int]
    key: bytes
    requests: int = 0
    with_text: int = 0
    unreadable: int = 0
    _began_unix_ms: float | None = None
    _people: set[str] = field(default_factory=set)
    _forgotten: dict[str, int] = field(default_factory=dict)

    def forget(self, told: Forgotten) -> bool:
        """Record no text of a conversation from before that moment; return whether the file may have such text
        already."""
        self._forgotten[told.person] = max(told.unix_ms, self._forgotten.get(told.person, 0))
        return told.person in self._people

    def asked(self, record: Record, bucket: Bucket, now_unix_ms: float) -> RecordedRequest | None:
        """Return the entry for a request; None for a record that no worker could serve either, which is counted."""
        arrived = record.arrived_unix_ms if record.arrived_unix_ms is not None else now_unix_ms
        try:
            request = open_request(record.value, record.headers, unreadable=record.unreadable)
            order = settle(request, self.defaults, arrived)
        except ProtocolError:
            self.unreadable += 1
            return None
        if self._began_unix_ms is None:
            self._began_unix_ms = arrived
        person = SessionKey(order.tenant, request.session_id).digest
        consented = request.consent is not None and request.consent.training
        consented = consented and not must_go(self._forgotten, (person,), arrived)
        if consented:
            self._people.add(person)
        self.requests += 1
        self.with_text += consented
        return RecordedRequest(
            at_ms=max(0.0, arrived - self._began_unix_ms),  # another partition's records may be read first
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
            person=person if consented else None,
        )


def _relative(order: Order, unix_ms: int) -> int:
    return max(1, min(_MOST_MS, unix_ms - order.created_unix_ms))
