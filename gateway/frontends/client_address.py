"""Find the address that a client is charged by. Pure.

A trusted proxy names its client in `X-Forwarded-For`. Proxies append to the header that came with the request, so the
last address that is no trusted proxy's is the client's; the client may have written those before it.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network
_IPV6_PREFIX: Final = 64  # one customer has so many addresses


def charged_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """Return the address to charge. `peer` is the socket's, `forwarded` the header's lines. It is empty where the peer
    has no address."""
    hops = [hop.strip() for line in forwarded for hop in line.split(",")]
    found = _parsed(peer)
    while found is not None and hops and _is_in(found, trusted):
        before = _parsed(hops.pop())
        if before is None:
            break
        found = before
    return "" if found is None else _network_of(found)


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    address = _parsed(peer)
    return address is not None and _is_in(address, trusted)


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Without the port that some proxies write behind it."""
    text = text.partition("]")[0].lstrip("[") if text.startswith("[") else text
    text = text.partition(":")[0] if text.count(":") == 1 else text
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network_of(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((address, _IPV6_PREFIX), strict=False))
