"""Read the addresses of peers. Pure."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_IPV6_PREFIX: Final = 64  # one customer has so many addresses


def parsed(text: str) -> Address | None:
    """Return the address in a text, without the port that some proxies write behind it; None where there is none."""
    text = text.partition("]")[0].lstrip("[") if text.startswith("[") else text
    text = text.partition(":")[0] if text.count(":") == 1 else text
    try:
        address = ip_address(text.partition("/")[0].partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def network_of(address: Address) -> str:
    """Return the addresses of one customer: the address itself, of IPv6 its /64."""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((address, _IPV6_PREFIX), strict=False))
