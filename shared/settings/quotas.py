"""The settings of what a client may use up a minute."""

from pydantic import Field

from shared.settings.group import Group


class QuotaSettings(Group):
    """What a client may use up a minute, in units: each kind of message that costs has its own."""

    subject_per_minute: int = Field(120, ge=0, description="units of one token's subject, at all gateways (0: any)")
    tenant_per_minute: int = Field(0, ge=0, description="units of all who ask one tenant, at all gateways (0: any)")
    address_per_minute: int = Field(
        1_200, ge=0, description="units of one client's address, IPv6 by /64, at each gateway (0: any)"
    )
    cost_ask: int = Field(1, ge=0, description="units of a question")
    cost_resume: int = Field(1, ge=0, description="units of going on with a session that has a name, or a cursor")
    cost_delete: int = Field(10, ge=0, description="units of an erasure: every worker and both Redis hear of it")
    cost_handoff: int = Field(20, ge=0, description="units of asking for a person, by a message or in a question")
    cost_feedback: int = Field(1, ge=0, description="units of a rating")
    cost_token: int = Field(1, ge=0, description="units of checking a token, good or bad; of the address alone")
