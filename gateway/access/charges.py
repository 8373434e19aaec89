"""Decide what each message costs, and which payers are charged; count what this process charges by itself. Pure."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.wire.messages import HandoffReason
from shared.wire.session_key import SessionKey

Kind = Literal["ask", "resume", "delete", "handoff", "feedback", "token"]
"""The messages that cost."""
Payer = Literal["subject", "tenant", "address", "session"]

_HANDOFFS_PER_MINUTE: Final = 6  # of one session; an open one is sent again
_PART: Final = 5  # of a tenant's hand-offs one subject or address may have so much
# An erasure reaches every worker and both Redis, a hand-off a person.
COSTS_UNITS: Final[Mapping[Kind, int]] = {
    "ask": 1,
    "resume": 1,
    "delete": 10,
    "handoff": 20,
    "feedback": 1,
    "token": 1,
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a message. `subject` is empty where no tokens are checked, `address` where there is none."""

    session: SessionKey
    subject: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """`units` of the `per_minute` that the payer of this name may use up."""

    payer: Payer
    name: str
    units: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Tariff:
    quotas: QuotaSettings
    handoff: HandoffSettings
    costs_units: Mapping[Kind, int] = field(default_factory=lambda: COSTS_UNITS)

    def here(self, kind: Kind, caller: Caller) -> list[Charge]:
        """Return the charges that this gateway counts by itself: no other count is looked up for a client with many
        addresses or sessions."""
        charges = [self._units("address", caller.address, kind, self.quotas.address_per_minute)]
        if kind == "handoff":
            name = f"{caller.session.tenant}/{caller.session.session_id}"
            charges.append(Charge("session", name, 1, _HANDOFFS_PER_MINUTE))
        return _due(charges)

    def shared(self, kind: Kind, caller: Caller) -> list[Charge]:
        """Return the charges that all gateways count together, of one tenant."""
        subject = f"subject/{caller.subject}" if caller.subject else ""
        return _due(
            [
                self._units("subject", subject, kind, self.quotas.subject_per_minute),
                self._units("tenant", "tenant", kind, self.quotas.tenant_per_minute),
            ]
        )

    def opened(self, reason: HandoffReason, caller: Caller) -> list[Charge]:
        """Return the charges of a hand-off that is made, beside that of asking for it: each customer has a fair share
        of the tenant's."""
        name, most = "fallbacks" if reason == "fallbacks" else "requested", self.handoff.per_minute
        if not most:
            return []
        charges = [Charge("tenant", name, 1, most)]
        payer: Payer = "subject" if caller.subject else "address"
        if whose := caller.subject or caller.address:
            charges.insert(0, Charge(payer, f"{name}/{payer}/{whose}", 1, max(1, most // _PART)))
        return charges

    def _units(self, payer: Payer, name: str, kind: Kind, per_minute: int) -> Charge:
        """Return the charge of one message, at most a minute's worth: more could never be paid."""
        return Charge(payer, name, min(self.costs_units[kind], per_minute), per_minute)


def _due(charges: list[Charge]) -> list[Charge]:
    """Return the charges that have a payer and cost something: 0 is no limit, or free."""
    return [charge for charge in charges if charge.name and charge.units]


MINUTE_MS: Final = 60_000.0
ROUNDING_MS: Final = 0.5  # what a minute's worth of sums of milliseconds may be off


@dataclass(frozen=True, slots=True)
class Overdrawn:
    """The charge that is one too many, and in how many ms it would not be."""

    charge: Charge
    wait_ms: float


class LocalQuota:
    """A token bucket a payer, a minute's worth deep; at most `max_names`, the longest unused forgotten first."""

    def __init__(self, max_names: int = 10_000) -> None:
        self._max_names = max_names
        self._full_ms: OrderedDict[tuple[str, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_ms)

    def charge(self, charges: Sequence[Charge], now_ms: float, *, tenant: str = "") -> Overdrawn | None:
        """Charge all of the charges, or none where one is too many, which is returned. `now_ms` is monotonic; `tenant`
        tells payers of one name apart.

        A bucket is kept as the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371): each
        unit moves that time by its share of the minute, and it may not lie more than a minute ahead."""
        full_ms: dict[tuple[str, str], float] = {}
        for charge in charges:
            name: tuple[str, str] = (charge.payer, f"{tenant}/{charge.name}")
            share_ms = charge.units * MINUTE_MS / charge.per_minute
            full_ms[name] = max(self._full_ms.get(name, now_ms), now_ms) + share_ms
            wait_ms = full_ms[name] - now_ms - MINUTE_MS
            if wait_ms > ROUNDING_MS:
                return Overdrawn(charge, wait_ms)
        for name, then_ms in full_ms.items():
            self._full_ms[name] = then_ms
            self._full_ms.move_to_end(name)
        while len(self._full_ms) > self._max_names:
            self._full_ms.popitem(last=False)
        return None
