"""Count open connections, in total and for each client. Pure.

An open connection costs its client nothing, so one address or one token's subject may use only a share of them. There
is no share for clients without a quota (0), or for a trusted proxy that does not name its client.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from shared.errors import ProtocolError
from shared.settings.gateway import QuotaSettings

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_IPV6_PREFIX: Final = 64  # one customer has this much of the address space
_NAT64: Final = IPv6Network("64:ff9b::/96")  # IPv4 clients of an IPv6-only network, RFC 6052


def parsed(text: str) -> Address | None:
    """Parse an address, with or without the port and quotes that some proxies add; return None for any other text."""
    text = text.strip('"')
    text = text.partition("]")[0].lstrip("[") if text.startswith("[") else text
    text = text.partition(":")[0] if text.count(":") == 1 else text
    try:
        address = ip_address(text.partition("/")[0].partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address in _NAT64):
        return IPv4Address(address.packed[-4:])
    return address


def network_of(address: Address) -> str:
    """Return the addresses of one customer: the address itself, an IPv6 address's /64, or the IPv4 address of a client
    of 6to4, which has 65,536 of these."""
    if isinstance(address, IPv4Address):
        return str(address)
    if address.sixtofour is not None:
        return str(address.sixtofour)
    return str(ip_network((address, _IPV6_PREFIX), strict=False))


REFUSALS: Final = 10  # connections above a limit that are open only until their refusal is sent
_ADDRESS_PART: Final = 20
_SUBJECT_PART: Final = 100
_LEAST: Final = 10
_RETRY_AFTER_MS: Final = 2_000


@dataclass(slots=True, kw_only=True)
class OpenSockets:
    """The open connections, identified by any hashable. Each is added, may be assigned to an address or subject, and
    removed.

    Attributes:
        most: maximum connections. At this number, a new one replaces the one that has waited longest for its next
            request.
        spare: connections above a limit that are still added; `refusal` returns the error for each of them.
    """

    most: int = 10_000
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    proxies: Sequence[Network] = ()
    address_part: int = _ADDRESS_PART
    spare: int = 0
    _keys: dict[Hashable, list[str]] = field(default_factory=dict)
    _held: Counter[str] = field(default_factory=Counter)
    _refusals: dict[Hashable, ProtocolError] = field(default_factory=dict)
    _waiting: dict[Hashable, None] = field(default_factory=dict)  # the one that waits longest is first

    def add(self, connection: Hashable, address: str) -> None:
        """Count a connection.

        Raises:
            ProtocolError: there are too many in total or from that address.
        """
        excess = len(self._keys) - self.most
        if excess >= self.spare:
            raise _too_many(f"{self.most} connections are open here")
        if excess >= 0:
            self._refusals[connection] = _too_many(f"{self.most} connections are open here")
        self._keys[connection] = []
        try:
            self.assign_address(connection, address, self.spare)
        except ProtocolError:
            self.remove(connection)
            raise

    def assign_address(self, connection: Hashable, address: str, spare: int = REFUSALS) -> None:
        """Assign a connection to an address in place of an earlier one, because its proxy names another client.

        Raises:
            ProtocolError: the address has too many connections, and `spare` more.
        """
        keys = self._keys[connection]
        earlier = next((key for key in keys if key.startswith("address/")), None)
        found = parsed(address)
        key = f"address/{network_of(found)}" if found is not None and self.is_limited(address) else None
        if key == earlier:
            return
        if earlier is not None:
            keys.remove(earlier)
            self._release(earlier)
        if key is not None:
            self._take(connection, key, self.most // self.address_part, spare)

    def assign(self, connection: Hashable, tenant: str, subject: str) -> None:
        """Assign a connection to its session's subject.

        Raises:
            ProtocolError: the subject has too many connections.
        """
        if subject and self.quotas.subject_per_minute and connection in self._keys:
            self._take(connection, f"subject/{tenant}/{subject}", self.most // _SUBJECT_PART, 0)

    def refusal(self, connection: Hashable) -> ProtocolError | None:
        """Return why an added connection must be refused; None for any other."""
        return self._refusals.get(connection)

    def wait(self, connection: Hashable) -> None:
        """Mark a connection as waiting for its client's next request."""
        if connection in self._keys:
            self._waiting[connection] = None

    def serve(self, connection: Hashable) -> None:
        """Mark a connection's request as complete."""
        self._waiting.pop(connection, None)

    def gives_way(self) -> Hashable | None:
        """Return the connection that has waited longest, if a new one needs its place."""
        return next(iter(self._waiting), None) if len(self._keys) >= self.most else None

    def remove(self, connection: Hashable) -> None:
        """Remove a connection; an unknown one is ignored."""
        self._waiting.pop(connection, None)
        self._refusals.pop(connection, None)
        for key in self._keys.pop(connection, ()):
            self._release(key)

    def missing(self) -> str | None:
        """Return the line about connections for `/ready`; None while there is room."""
        full = len(self._keys) >= self.most and not self._waiting
        return f"{self.most} connections are open: no new client is accepted" if full else None

    def is_limited(self, address: str) -> bool:
        """Return whether an address is a single client's, so that its share of the connections is limited."""
        found = parsed(address)
        if found is None or not self.quotas.address_per_minute:
            return False
        network = ip_network(network_of(found))
        return not any(proxy.version == network.version and network.overlaps(proxy) for proxy in self.proxies)

    def _take(self, connection: Hashable, key: str, part: int, spare: int) -> None:
        most = max(part, _LEAST)
        if self._held[key] >= most:
            error = _too_many(f"{most} connections of one {key.partition('/')[0]} are open here")
            self._refusals[connection] = error
            if self._held[key] >= most + spare:
                raise error
        self._keys[connection].append(key)
        self._held[key] += 1

    def _release(self, key: str) -> None:
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]


def _too_many(why: str) -> ProtocolError:
    return ProtocolError(
        "too_many_connections",
        f"{why}; retry later, another gateway may have room",
        kind="overloaded_error",
        retriable=True,
        retry_after_ms=_RETRY_AFTER_MS,
    )
