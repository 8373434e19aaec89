"""Find the address that a client is charged by. Pure.

A trusted proxy names its client in `X-Forwarded-For`. Proxies append to the header that came with the request, so the
last address that is no trusted proxy's is the client's; the client may have written those before it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from shared.sockets.addresses import Address, Network, network_of, parsed

_HOPS: Final = 10
_HOPS_CHARS: Final = 1_024


def charged_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """Return the address to charge. `peer` is the socket's, `forwarded` the header's lines, of which the last hops are
    read. It is empty where the peer has no address."""
    hops = [hop.strip() for hop in _last_hops(forwarded)]
    found = parsed(peer)
    while found is not None and hops and _is_in(found, trusted):
        before = parsed(hops.pop())
        if before is None:
            break
        found = before
    return "" if found is None else network_of(found)


def _last_hops(forwarded: Iterable[str]) -> list[str]:
    last = ",".join(list(forwarded)[-_HOPS:])[-_HOPS_CHARS:]
    return last.rsplit(",", _HOPS)[-_HOPS:] if last else []


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    address = parsed(peer)
    return address is not None and _is_in(address, trusted)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
