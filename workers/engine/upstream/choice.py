"""Decide which upstream gets a request, and when a failed one is tried again. Pure.

Each upstream has a breaker. Closed: it serves. Open, after a failure that the next request would have too: nothing is
sent until a wait is over, which doubles each time, and a probe is answered. Half-open: one request at a time, until
text arrives.

A failure that a customer's text may cause opens no breaker, however often it occurs: after several in a row the
upstream gets a request with the shop's own text, and is opened if it does not answer that.

Slow is not failed. A request without any text counts against an upstream only if no other request got text from it in
the same time; then it is probed, and opened immediately if it does not answer. An upstream that rejects a request as
busy while it computes others of ours has only that many places; answers in all of them add one back.

A conversation stays with one upstream, whose prefix cache has its earlier turns, while there is a place: addresses are
ranked by a hash of conversation and address (rendezvous hashing: Thaler and Ravishankar, IEEE/ACM ToN 6, 1998).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

from workers.engine.upstream.failures import UpstreamFailure

_FAILURES: Final = 3
_IN_VAIN: Final = 2  # openings without an answer in between, after which it is not expected back soon
_FIRST_WAIT_MS: Final = 500.0
MOST_WAIT_MS: Final = 30_000.0
_MOST_DOUBLINGS: Final = 10


class Breaker(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(slots=True)
class _Upstream:
    """The state of one upstream.

    Attributes:
        failures: failures in a row; of those that a request's text may cause, one for each conversation in `failed`.
        opened: openings since the last answer.
        why: the last failure.
        heard_unix_ms: when text last arrived.
        doubted: it must be probed although its breaker is closed.
        suspected: it must be probed with the shop's own text.
    """

    places: float
    breaker: Breaker = Breaker.OPEN
    running: int = 0
    failures: int = 0
    opened: int = 0
    opens_unix_ms: float = 0.0
    heard_unix_ms: float = float("-inf")
    doubted: bool = False
    suspected: bool = False
    failed: set[str] = field(default_factory=set)
    why: str = "not reached yet"


class Choice:
    """Chooses upstreams. Each gets at most `places` requests at a time."""

    def __init__(self, addresses: Sequence[str], *, places: int) -> None:
        self._places = places
        self._upstreams = {address: _Upstream(places) for address in addresses}

    def pick(self, conversation: str, *, besides: Collection[str] = ()) -> str | None:
        """Return the upstream for a request, which occupies a place until `ended`; None if none has a free place."""
        free = [address for address in self._upstreams if address not in besides and self._room(address)]
        best = max(free, key=lambda address: _rank(conversation, address), default=None)
        if best is not None:
            self._upstreams[best].running += 1
        return best

    def heard(self, address: str, now_unix_ms: float) -> None:
        """Record that text arrived: a half-open upstream serves normally again. Failures are reset by a complete
        answer."""
        upstream = self._upstreams[address]
        upstream.heard_unix_ms = now_unix_ms
        if upstream.breaker is Breaker.HALF_OPEN:
            upstream.breaker = Breaker.CLOSED

    def ended(
        self,
        address: str,
        now_unix_ms: float,
        failure: UpstreamFailure | None,
        *,
        answered: bool,
        sent_unix_ms: float,
        conversation: str | None = None,
    ) -> None:
        """Record that a request has left its place: `answered`, failed, or neither if it was withdrawn."""
        upstream = self._upstreams[address]
        upstream.running -= 1
        if answered:
            upstream.failures = upstream.opened = 0
            upstream.failed.clear()
            upstream.places = min(upstream.places + 1 / upstream.places, self._places)
            if upstream.breaker is Breaker.HALF_OPEN:
                upstream.breaker = Breaker.CLOSED
        elif failure is None or failure.blameless or _slow(upstream, failure, sent_unix_ms):
            return
        elif failure.cause == "busy" and not failure.retry_after_ms and upstream.running:
            upstream.places = upstream.running
        elif failure.provoked:
            upstream.failures += conversation not in upstream.failed
            if conversation is not None:
                upstream.failed.add(conversation)
            upstream.suspected = upstream.breaker is Breaker.HALF_OPEN or upstream.failures >= _FAILURES
        else:
            upstream.failures += 1
            upstream.doubted = failure.quiet
            if failure.shuts or upstream.breaker is not Breaker.CLOSED or upstream.failures >= _FAILURES:
                self._open(upstream, now_unix_ms, failure)

    def due(self, now_unix_ms: float) -> list[str]:
        """Return the upstreams that must be probed now."""
        return [
            address
            for address, upstream in self._upstreams.items()
            if (
                upstream.opens_unix_ms <= now_unix_ms
                if upstream.breaker is Breaker.OPEN
                else upstream.doubted or upstream.suspected
            )
        ]

    def is_suspected(self, address: str) -> bool:
        """Return whether an upstream must be probed with the shop's own text."""
        return self._upstreams[address].suspected

    def probed(self, address: str, now_unix_ms: float, failure: UpstreamFailure | None, *, sent_unix_ms: float) -> None:
        """Record the result of a probe."""
        upstream = self._upstreams[address]
        was_suspected, upstream.doubted, upstream.suspected = upstream.suspected, False, False
        if failure is not None:
            if upstream.breaker is Breaker.OPEN or not _slow(upstream, failure, sent_unix_ms):
                self._open(upstream, now_unix_ms, failure)
        elif upstream.breaker is Breaker.OPEN:
            upstream.breaker = Breaker.HALF_OPEN if upstream.failures else Breaker.CLOSED
        elif was_suspected:
            upstream.breaker, upstream.failures, upstream.opened = Breaker.CLOSED, 0, 0
            upstream.failed.clear()

    @property
    def num_addresses(self) -> int:
        return len(self._upstreams)

    @property
    def free(self) -> int:
        """Return the number of requests that could be sent now."""
        return sum([self._room(address) for address in self._upstreams])

    def serves(self, *, besides: Collection[str]) -> bool:
        """Return whether other upstreams than these serve, even if they are full."""
        return any(not self.is_open(address) for address in self._upstreams if address not in besides)

    def is_open(self, address: str) -> bool:
        """Return whether an upstream's breaker is open, so that nothing is sent there."""
        return self._upstreams[address].breaker is Breaker.OPEN

    def back_unix_ms(self, *, besides: Collection[str] = (), patient: bool = False) -> float:
        """Return when upstreams other than these may serve again; 0 while one does.

        After unsuccessful probes this is infinity, or the time of the next probe if `patient`.
        """
        others = [each for address, each in self._upstreams.items() if address not in besides]
        backs = [_back_unix_ms(each, patient=patient) for each in others]
        return min(backs, default=float("inf"))

    def missing(self) -> str | None:
        """Return why no upstream can be used; None while one can."""
        if any(each.breaker is not Breaker.OPEN for each in self._upstreams.values()):
            return None
        return "; ".join(f"{address}: {each.why}" for address, each in self._upstreams.items())

    def _room(self, address: str) -> int:
        upstream = self._upstreams[address]
        places = {Breaker.CLOSED: int(upstream.places), Breaker.HALF_OPEN: 1, Breaker.OPEN: 0}[upstream.breaker]
        return max(0, places - upstream.running)

    def _open(self, upstream: _Upstream, now_unix_ms: float, failure: UpstreamFailure) -> None:
        upstream.why = str(failure)
        # otherwise it is already waiting
        if upstream.breaker is not Breaker.OPEN or upstream.opens_unix_ms <= now_unix_ms:
            wait_ms = min(_FIRST_WAIT_MS * 2 ** min(upstream.opened, _MOST_DOUBLINGS), MOST_WAIT_MS)
            upstream.opened += 1
            upstream.opens_unix_ms = now_unix_ms + max(wait_ms, failure.retry_after_ms)
        upstream.breaker = Breaker.OPEN


def _slow(upstream: _Upstream, failure: UpstreamFailure, sent_unix_ms: float) -> bool:
    """Return whether an upstream did not answer one request while it wrote another's answer."""
    return failure.quiet and upstream.heard_unix_ms >= sent_unix_ms


def _back_unix_ms(upstream: _Upstream, *, patient: bool) -> float:
    if upstream.breaker is not Breaker.OPEN:
        return 0.0
    return upstream.opens_unix_ms if patient or upstream.opened < _IN_VAIN else float("inf")


def _rank(conversation: str, address: str) -> bytes:
    return blake2b(f"{conversation}\n{address}".encode(), digest_size=8).digest()
