"""Count the sockets that clients hold open here, all of them and each client's. Pure.

An open socket costs its client nothing, so one address or one token's subject may hold only a part of them. A client
without a quota (0) may hold as many as there are; so may a trusted proxy that does not name its client.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from shared.errors import ProtocolError
from shared.settings.quotas import QuotaSettings

_ADDRESS_PART: Final = 20
_SUBJECT_PART: Final = 100
_LEAST: Final = 10
_RETRY_AFTER_MS: Final = 2_000


@dataclass(slots=True, kw_only=True)
class OpenSockets:
    """The open sockets. Each is added, may be assigned to a subject, and is removed; a client with too many gets the
    time to wait."""

    most: int = 10_000
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    proxies: Sequence[IPv4Network | IPv6Network] = ()
    _keys: dict[str, list[str]] = field(default_factory=dict)
    _held: Counter[str] = field(default_factory=Counter)

    def add(self, connection_id: str, address: str) -> None:
        """Count a socket. Raises `ProtocolError` where there are too many, here or of that address."""
        if len(self._keys) >= self.most:
            raise _too_many(f"{self.most} connections are open here")
        keys: list[str] = []
        if address and self.quotas.address_per_minute and not self._is_proxy(address):
            keys.append(self._free(f"address/{address}", self.most // _ADDRESS_PART))
        self._hold(connection_id, keys)

    def assign(self, connection_id: str, tenant: str, subject: str) -> None:
        """Assign a socket to its session's subject. Raises `ProtocolError` where that has too many."""
        if subject and self.quotas.subject_per_minute and connection_id in self._keys:
            self._hold(connection_id, [self._free(f"subject/{tenant}/{subject}", self.most // _SUBJECT_PART)])

    def remove(self, connection_id: str) -> None:
        """Remove a socket; one that was never added is ignored."""
        for key in self._keys.pop(connection_id, ()):
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    def missing(self) -> str | None:
        """Return the sockets' line for `/ready`; None while there is room."""
        return f"{self.most} connections are open: nobody new is let in" if len(self._keys) >= self.most else None

    def _is_proxy(self, address: str) -> bool:
        network = ip_network(address)
        return any(proxy.version == network.version and network.overlaps(proxy) for proxy in self.proxies)

    def _free(self, key: str, part: int) -> str:
        most = max(part, _LEAST)
        if self._held[key] >= most:
            raise _too_many(f"{most} connections of one {key.partition('/')[0]} are open here")
        return key

    def _hold(self, connection_id: str, keys: list[str]) -> None:
        self._keys.setdefault(connection_id, []).extend(keys)
        self._held.update(keys)


def _too_many(why: str) -> ProtocolError:
    return ProtocolError(
        "too_many_connections",
        f"{why}; come again, another gateway may have room",
        kind="overloaded_error",
        retriable=True,
        retry_after_ms=_RETRY_AFTER_MS,
    )
