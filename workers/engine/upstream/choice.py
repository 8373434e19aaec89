"""Decide which upstream a request goes to, and when one that failed is tried again. Pure.

Each upstream has its breaker. Closed: it serves. Open, after a failure that says that the next request would fare no
better: nothing is sent until its wait is over, which doubles each time, and it answers a probe. Half-open: one request
at a time, until text comes.

A failure that a customer's words may provoke opens no breaker, however often: after several in a row the upstream is
sent the shop's own words, and opened if it does not answer those.

Slow is not dead. A request to which nothing came counts against an upstream only if no other got text from it
meanwhile; then it is probed, and one that does not answer the probe is opened at once. One that refuses a request as
busy while it computes others of ours has so few places; answers from all of them give one back.

A conversation stays with one upstream, whose prefix cache has its earlier turns, while there is a place: the addresses
are ranked by a hash of the conversation and each (rendezvous hashing: Thaler and Ravishankar, IEEE/ACM ToN 6, 1998).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

from workers.engine.upstream.failures import UpstreamFailure

_FAILURES: Final = 3
_IN_VAIN: Final = 2  # openings without an answer between: it is not back soon
_FIRST_WAIT_MS: Final = 500.0
MOST_WAIT_MS: Final = 30_000.0
_MOST_DOUBLINGS: Final = 10


class Breaker(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(slots=True)
class _Upstream:
    """`failures` came in a row, of those that a request may provoke one for each of the conversations that it `failed`;
    `opened` counts the openings since the last answer; `why` says what the last failure was. Text came last at
    `heard_unix_ms`; `doubted`: it is to be probed, though it is not open; `suspected`: by the shop's own words."""

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
    """`places` requests go to each upstream at a time, at most."""

    def __init__(self, addresses: Sequence[str], *, places: int) -> None:
        self._places = places
        self._upstreams = {address: _Upstream(places) for address in addresses}

    def pick(self, conversation: str, *, besides: Collection[str] = ()) -> str | None:
        """Return the upstream that a request goes to, whose place it takes until `ended`; None where none has one."""
        free = [address for address in self._upstreams if address not in besides and self._room(address)]
        best = max(free, key=lambda address: _rank(conversation, address), default=None)
        if best is not None:
            self._upstreams[best].running += 1
        return best

    def heard(self, address: str, now_unix_ms: float) -> None:
        """Note that text came: what was half-open serves all again. Its failures are forgotten with a whole answer."""
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
        """Note that a request left its place: it was `answered`, or failed; neither where it was withdrawn."""
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
        """Return the upstreams that are to be probed now."""
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
        """Return whether an upstream is to be probed by the shop's own words."""
        return self._upstreams[address].suspected

    def probed(self, address: str, now_unix_ms: float, failure: UpstreamFailure | None, *, sent_unix_ms: float) -> None:
        """Note what a probe brought."""
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
        """Return how many requests could go out now."""
        return sum([self._room(address) for address in self._upstreams])

    def serves(self, *, besides: Collection[str]) -> bool:
        """Return whether others than these serve, be they full."""
        return any(not self.is_open(address) for address in self._upstreams if address not in besides)

    def is_open(self, address: str) -> bool:
        """Return whether an upstream's breaker is open: nothing is sent there."""
        return self._upstreams[address].breaker is Breaker.OPEN

    def back_unix_ms(self, *, besides: Collection[str] = (), patient: bool = False) -> float:
        """Return when others than these may serve again: 0 while one does; where probes were in vain infinity, or for
        the `patient` when the next one is due."""
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
        if upstream.breaker is not Breaker.OPEN or upstream.opens_unix_ms <= now_unix_ms:  # else it waits already
            wait_ms = min(_FIRST_WAIT_MS * 2 ** min(upstream.opened, _MOST_DOUBLINGS), MOST_WAIT_MS)
            upstream.opened += 1
            upstream.opens_unix_ms = now_unix_ms + max(wait_ms, failure.retry_after_ms)
        upstream.breaker = Breaker.OPEN


def _slow(upstream: _Upstream, failure: UpstreamFailure, sent_unix_ms: float) -> bool:
    """Return whether an upstream left one request without an answer while it wrote another's."""
    return failure.quiet and upstream.heard_unix_ms >= sent_unix_ms


def _back_unix_ms(upstream: _Upstream, *, patient: bool) -> float:
    if upstream.breaker is not Breaker.OPEN:
        return 0.0
    return upstream.opens_unix_ms if patient or upstream.opened < _IN_VAIN else float("inf")


def _rank(conversation: str, address: str) -> bytes:
    return blake2b(f"{conversation}\n{address}".encode(), digest_size=8).digest()
