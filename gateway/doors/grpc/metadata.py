"""Read a call's metadata. Pure."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from gateway.exchange.question import Asker, patience_ms
from gateway.frontends.client_address import charged_address
from gateway.http.headers import bearer, idempotency_key, traceparent
from shared.sockets.open_sockets import Network

Metadata = Sequence[tuple[str, str | bytes]]
# gRPC's own, from a client that asks again by itself.
_ATTEMPTS: Final = "grpc-previous-rpc-attempts"


def asker_of(
    peer: str, metadata: Metadata, remaining_s: float | None, *, trusted: Sequence[Network], promised_ms: int
) -> Asker:
    """Return who makes this call. `peer` is gRPC's name for its address, as `ipv6:%5B::1%5D:5000`; `remaining_s` is
    what is left of its deadline."""
    texts = {name: value for name, value in metadata if isinstance(value, str)}
    forwarded = [value for name, value in metadata if name == "x-forwarded-for" and isinstance(value, str)]
    return Asker(
        address=charged_address(unquote(peer.partition(":")[2]), forwarded, trusted),
        token=bearer(texts),
        deadline_ms=None if remaining_s is None else patience_ms(remaining_s * 1_000, promised_ms),
        key=idempotency_key(texts),
        is_retry=_ATTEMPTS in texts,
        traceparent=traceparent(texts),
    )
