"""Decide what each message costs, and which payers are charged. Pure."""

from collections.abc import Mapping
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
