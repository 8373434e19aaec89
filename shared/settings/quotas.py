"""The settings of what a client may use up a minute."""

from pydantic import Field

from shared.settings.group import Group


class QuotaSettings(Group):
    """The units that a client may use up a minute: each kind of message that costs has its own."""

    subject_per_minute: int = Field(
        120, ge=0, description="units a minute for one subject of a token, at all gateways together (0: no bound)"
    )
    tenant_per_minute: int = Field(
        0, ge=0, description="units a minute for one tenant's clients, at all gateways together (0: no bound)"
    )
    address_per_minute: int = Field(
        1_200, ge=0, description="units a minute for one client address (IPv6: its /64), at each gateway (0: no bound)"
    )
