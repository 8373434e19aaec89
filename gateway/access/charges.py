"""Decide what each message costs and which payers to charge, and count the charges of this process. Pure."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.wire.messages import HandoffReason
from shared.wire.session_key import SessionKey

Kind = Literal["ask", "resume", "delete", "handoff", "feedback", "token"]
"""The kinds of messages that cost something."""
Payer = Literal["subject", "tenant", "address", "session"]

_HANDOFFS_PER_MINUTE: Final = 6  # per session; an open hand-off is sent again
_REFUSED_BYTES: Final = 2_048  # a unit
# Longer than the largest message in the documented form takes. A message in other forms may take a hundred times as
# long (64 KiB of single texts where parts belong: 160 ms), and each further millisecond costs a unit.
_FREE_MS: Final = 5
_QUESTION_CHARS: Final = 1_000  # searching 8,000 takes 10 to 30 ms of a gateway's or worker's event loop
_PART: Final = 5  # one subject or address may use this fraction of a tenant's hand-offs
# An erasure involves every worker and both Redis servers, a hand-off involves a person.
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
    """The sender of a message. `subject` is empty if no tokens are checked, `address` if it is unknown."""

    session: SessionKey
    subject: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge: `units` for the payer `name`, which may use `per_minute` of them."""

    payer: Payer
    name: str
    units: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Tariff:
    quotas: QuotaSettings
    handoff: HandoffSettings
    costs_units: Mapping[Kind, int] = field(default_factory=lambda: COSTS_UNITS)

    def here(self, kind: Kind, caller: Caller, num_chars: int = 0) -> list[Charge]:
        """Return the charges of a message that this gateway counts in its own memory: one for the client's address, and
        for a hand-off one for the session. The other charges (`shared`) are counted in Redis for all gateways; these
        are made first, so that a flood from one address costs no call to Redis. A question of `num_chars` costs its
        address more the longer it is."""
        times = 1 + max(0, num_chars - 1) // _QUESTION_CHARS
        charges = [self._units("address", caller.address, kind, self.quotas.address_per_minute, times)]
        if kind == "handoff":
            name = f"{caller.session.tenant}/{caller.session.session_id}"
            charges.append(Charge("session", name, 1, _HANDOFFS_PER_MINUTE))
        return _due(charges)

    def decoded(self, address: str, *, refused_bytes: int | None = None, cpu_ms: float = 0) -> list[Charge]:
        """Return the charge for decoding a message that was refused, which is dearer the longer it was, or that took
        long. It is apart from the address's other charges.

        Args:
            address: the client's address
            refused_bytes: the length of a refused message; None if it was understood
            cpu_ms: time that decoding took
        """
        most = self.quotas.address_per_minute
        units = 0 if refused_bytes is None else 1 + refused_bytes // _REFUSED_BYTES
        units = max(units, int(cpu_ms) if cpu_ms > _FREE_MS else 0)
        return _due([Charge("address", address and f"{address} decoded", min(units, most), most)])

    def shared(self, kind: Kind, caller: Caller) -> list[Charge]:
        """Return the charges that all gateways of a tenant count together."""
        subject = f"subject/{caller.subject}" if caller.subject else ""
        return _due(
            [
                self._units("subject", subject, kind, self.quotas.subject_per_minute),
                self._units("tenant", "tenant", kind, self.quotas.tenant_per_minute),
            ]
        )

    def opened(self, reason: HandoffReason, caller: Caller) -> list[Charge]:
        """Return the charges for opening a hand-off, in addition to those for requesting it. Each customer may use a
        share of the tenant's limit."""
        name, most = "fallbacks" if reason == "fallbacks" else "requested", self.handoff.per_minute
        if not most:
            return []
        charges = [Charge("tenant", name, 1, most)]
        payer: Payer = "subject" if caller.subject else "address"
        if whose := caller.subject or caller.address:
            charges.insert(0, Charge(payer, f"{name}/{payer}/{whose}", 1, max(1, most // _PART)))
        return charges

    def _units(self, payer: Payer, name: str, kind: Kind, per_minute: int, times: int = 1) -> Charge:
        """Return the charge of one message. It is at most a minute's worth, because a larger one could never be
        paid."""
        return Charge(payer, name, min(times * self.costs_units[kind], per_minute), per_minute)


def _due(charges: list[Charge]) -> list[Charge]:
    """Return the charges that have a payer and cost something. 0 means no limit, or no cost."""
    return [charge for charge in charges if charge.name and charge.units]


MINUTE_MS: Final = 60_000.0
ROUNDING_MS: Final = 0.5  # rounding error of a minute's worth of sums of milliseconds


@dataclass(frozen=True, slots=True)
class Overdrawn:
    """The charge that exceeds its limit, and in how many ms it would not."""

    charge: Charge
    wait_ms: float


class LocalQuota:
    """One token bucket per payer, a minute's worth deep. At most `max_names` are kept; the least recently used are
    dropped."""

    def __init__(self, max_names: int = 10_000) -> None:
        self._max_names = max_names
        self._full_ms: OrderedDict[tuple[str, str], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_ms)

    def charge(self, charges: Sequence[Charge], now_ms: float, *, tenant: str = "") -> Overdrawn | None:
        """Make all of the charges, or none if one exceeds its limit.

        A bucket is stored as the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371):
        each unit moves that time by its share of the minute, and it may be at most a minute in the future.

        Args:
            charges: the charges to make
            now_ms: monotonic time
            tenant: distinguishes payers of the same name

        Returns:
            The charge that exceeds its limit; None if all were made.
        """
        if (overdrawn := self.overdrawn(charges, now_ms, tenant=tenant)) is None:
            self._keep(self._after(charges, now_ms, tenant))
        return overdrawn

    def overdrawn(self, charges: Sequence[Charge], now_ms: float, *, tenant: str = "") -> Overdrawn | None:
        """Return the charge that would exceed its limit; None if all could be made."""
        after = self._after(charges, now_ms, tenant).values()
        for charge, then_ms in zip(charges, after, strict=True):
            if (wait_ms := then_ms - now_ms - MINUTE_MS) > ROUNDING_MS:
                return Overdrawn(charge, wait_ms)
        return None

    def owe(self, charges: Sequence[Charge], now_ms: float) -> None:
        """Make charges for what has already been done, even beyond their limits."""
        self._keep(self._after(charges, now_ms, ""))

    def _after(self, charges: Sequence[Charge], now_ms: float, tenant: str) -> dict[tuple[str, str], float]:
        """Return when each charge's bucket would be full again after it, in the charges' order."""
        full_ms: dict[tuple[str, str], float] = {}
        for charge in charges:
            name: tuple[str, str] = (charge.payer, f"{tenant}/{charge.name}")
            share_ms = charge.units * MINUTE_MS / charge.per_minute
            full_ms[name] = max(self._full_ms.get(name, now_ms), now_ms) + share_ms
        return full_ms

    def _keep(self, full_ms: Mapping[tuple[str, str], float]) -> None:
        for name, then_ms in full_ms.items():
            self._full_ms[name] = then_ms
            self._full_ms.move_to_end(name)
        while len(self._full_ms) > self._max_names:
            self._full_ms.popitem(last=False)
