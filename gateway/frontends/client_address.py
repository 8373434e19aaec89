"""Find a client's address: the account to which it is charged, and the address that identifies its retries. Pure.

A trusted proxy names its client in `X-Forwarded-For`. Proxies append to the header of the request, so the client's
address is the last one that is not a trusted proxy's; the client itself may have written those before it. A hop without
an address ("unknown", "_hidden") is a client that its proxy does not name: all of these share one account.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from shared.sockets.open_sockets import Address, Network, network_of, parsed

UNNAMED_CLIENT: Final = "0.0.0.0"  # noqa: S104 - an account; nothing listens on it
_HOPS: Final = 10
_HOPS_CHARS: Final = 1_024
_NO_HOPS: Final = ("", "unix:")  # a trailing comma; nginx's name for a peer on the same machine


class ClientAddress(NamedTuple):
    """A client's addresses.

    Attributes:
        charged: the account, which many clients may share
        own: this client's own address; empty if unknown, because clients share a /64, or a proxy does not name its
            clients or is not trusted to
    """

    charged: str = ""
    own: str = ""


def client_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> ClientAddress:
    """Return a client's address; empty if the peer has no address.

    Args:
        peer: address of the socket's other end
        forwarded: lines of the `X-Forwarded-For` header; only the last hops are read
        trusted: networks of trusted proxies
    """
    hops = [hop for each in _last_hops(forwarded) if (hop := each.strip().lower()) not in _NO_HOPS]
    found = parsed(peer)
    while found is not None and hops and _is_in(found, trusted):
        before = parsed(hops.pop())
        if before is None:
            return ClientAddress(UNNAMED_CLIENT)
        found = before
    if found is None:
        return ClientAddress()
    is_certain = is_trusted(peer, trusted) or not hops
    return ClientAddress(network_of(found), str(found) if is_certain else "")


def charged_address(peer: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """Return the address to charge (see `client_address`)."""
    return client_address(peer, forwarded, trusted).charged


def _last_hops(forwarded: Iterable[str]) -> list[str]:
    last = ",".join(list(forwarded)[-_HOPS:])[-_HOPS_CHARS:]
    return last.rsplit(",", _HOPS)[-_HOPS:] if last else []


def is_trusted(peer: str, trusted: Sequence[Network]) -> bool:
    address = parsed(peer)
    return address is not None and _is_in(address, trusted)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
