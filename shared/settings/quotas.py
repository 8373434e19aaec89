"""The settings of what a client may use up a minute."""

from pydantic import Field

from shared.settings.group import Group


class QuotaSettings(Group):
    """The units that a client may use up a minute: each kind of message that costs has its own."""

    subject_per_minute: int = Field(120, ge=0, description="units of one token's subject, at all gateways (0: any)")
    tenant_per_minute: int = Field(0, ge=0, description="units of all who ask one tenant, at all gateways (0: any)")
    address_per_minute: int = Field(
        1_200, ge=0, description="units of one client's address, IPv6 by /64, at each gateway (0: any)"
    )
