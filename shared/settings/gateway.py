"""The settings of the edge: what it listens to and bears, and what it sends to the workers."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PlainValidator, field_validator, model_validator

from shared.settings.auth import check_secret, read_secret
from shared.settings.group import Group
from shared.settings.origins import is_serialized_origin


def _network(value: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError:
        raise ValueError(f"{value!r} is no network: write its first address and its length, as 10.0.0.0/8") from None


class GatewaySettings(Group):
    """The edge: WebSocket and page on one port for customers; health and metrics on another for operators."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65_535, description="0 picks a free port")
    metrics_host: str = Field("127.0.0.1", description="address of /metrics, /health and /ready")
    metrics_port: int = Field(8082, ge=0, le=65_535, description="0 picks a free port")
    reply_partition: int = Field(0, ge=0, description="this gateway's own partition of chat.replies; no two alike")
    allowed_origins: tuple[str, ...] = Field(
        (), description="pages that may connect, as https://shop.example[:port] (empty: any; set it in production)"
    )
    trusted_proxies: tuple[Annotated[IPv4Network | IPv6Network, PlainValidator(_network)], ...] = Field(
        (IPv4Network("127.0.0.1/32"), IPv6Network("::1/128")),
        description="networks whose X-Forwarded-For tells a client's address, as 10.0.0.0/8 (empty: none)",
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        description="further ones are told to come again (4009); one address may hold a twentieth of them, one token's "
        "subject a hundredth",
    )
    max_inflight: int = Field(2_000, ge=1, description="unanswered requests of all connections together")
    # Each stands in every cursor of its connection, and a cursor has its longest (`gateway.request.cursor`).
    max_inflight_per_connection: int = Field(4, ge=1, le=32, description="unanswered requests of one connection")
    messages_per_minute: int = Field(100, ge=1, description="of one connection; pings and pongs are free")
    max_message_bytes: int = Field(65_536, ge=256, le=16_777_216, description="a bigger frame closes with 1009")
    cursor_secret_file: Path | None = Field(
        None,
        description="file with the gateways' common secret, 32 bytes at least: a client resumes at any (none: its own "
        "only); the line's end does not belong",
    )
    hello_timeout_s: float = Field(5.0, gt=0, le=300, description="session.start must come within this (4502)")
    heartbeat_s: float = Field(25.0, gt=0, le=3_600, description="between pings; two unanswered ones close with 4012")
    buffer_close_bytes: int = Field(
        262_144,
        ge=1_024,
        description="over this for slow_consumer_s: closed with 4008; over a quarter of it, deltas are merged",
    )
    slow_consumer_s: float = Field(5.0, gt=0, le=300, description="how long a client may stay over buffer_close_bytes")
    memory_budget_mib: int = Field(
        0,
        ge=0,
        description="of this process: at 92 % the fallback answers, at 95 % nobody new is let in (0: no budget)",
    )
    drain_s: float = Field(10.0, ge=0, le=300, description="how long shutdown waits for answers in flight")

    @property
    def buffer_merge_bytes(self) -> int:
        """Over this, deltas to a slow client are merged."""
        return self.buffer_close_bytes // 4

    @field_validator("cursor_secret_file")
    @classmethod
    def _cursor_secret_file_holds_one(cls, path: Path | None) -> Path | None:
        if path is not None:
            check_secret(read_secret(path))
        return path

    @field_validator("allowed_origins")
    @classmethod
    def _origins_are_as_browsers_write_them(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse an origin that no browser sends: it would never match."""
        for origin in origins:
            if not is_serialized_origin(origin):
                raise ValueError(
                    f"{origin!r} is no origin: write scheme://host or scheme://host:port as a browser does, in lower "
                    "case, without path, trailing slash, wildcard or the scheme's own port"
                )
        return origins

    @model_validator(mode="after")
    def _operators_have_a_port_of_their_own(self) -> Self:
        if self.port and self.port == self.metrics_port:
            raise ValueError(
                f"gateway.port and gateway.metrics_port are both {self.port}; customers reach the one only"
            )
        return self

    def cursor_secret_bytes(self) -> bytes | None:
        """Return the secret that the gateways sign cursors with, None where each makes its own."""
        return read_secret(self.cursor_secret_file) if self.cursor_secret_file is not None else None


class HandoffSettings(Group):
    """When people are asked to take a conversation over. Somebody has to read chat.handoffs: `replyline handoffs`."""

    enabled: bool = Field(
        False, description="true: somebody reads chat.handoffs and answers; else no person is promised to anybody"
    )
    after_fallbacks: int = Field(
        2,
        ge=0,
        le=1_000,
        description="a person is asked after so many answers in a row of one session that were fallbacks, or said that "
        "nothing is known (0: never)",
    )
    per_minute: int = Field(
        30,
        ge=0,
        description="people who are asked by one tenant's customers, at all gateways; as many again because of its "
        "fallbacks: an outage is not all theirs (0: any)",
    )


class AdmissionSettings(Group):
    """The bounds of what the gateway sends to the workers; the fallback answers the rest at once."""

    enabled: bool = Field(True, description="false: every request goes to the workers, whatever they report")
