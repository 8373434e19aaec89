"""The settings of the edge: what it listens to and bears, and what it sends to the workers."""

from base64 import b64decode
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, field_validator, model_validator

from shared.settings.auth import SecretFile, read_secret
from shared.settings.credential_files import PasswordFile, read_password
from shared.settings.group import Group, check_http_url
from shared.settings.origins import is_serialized_origin


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


_WEBHOOK_KEY_BYTES = range(24, 65)  # Standard Webhooks


def _network(value: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError:
        raise ValueError(f"{value!r} is no network: write its first address and its length, as 10.0.0.0/8") from None


class GatewaySettings(Group):
    """The edge: WebSocket and page on one port for customers; health and metrics on another for operators."""

    host: str = Field(
        "127.0.0.1",
        description="address that the gateway listens on for clients (:: is every address of IPv4 and IPv6)",
    )
    port: int = Field(8080, ge=0, le=65_535, description="port for clients: WebSocket and page (0: a free one)")
    metrics_host: str = Field("127.0.0.1", description="address of /metrics, /health and /ready (:: is every one)")
    metrics_port: int = Field(
        8082, ge=0, le=65_535, description="port of /metrics, /health, /ready and /drain (0: a free one)"
    )
    http_port: int = Field(0, ge=0, le=65_535, description="port of the doors over HTTP, as OpenAI's (0: none)")
    grpc_port: int = Field(0, ge=0, le=65_535, description="port of the door over gRPC (0: none)")
    openai_models: tuple[str, ...] = Field(
        ("replyline",), min_length=1, description="names by which those clients may ask for the model, comma-separated"
    )
    reply_partition: int = Field(
        0, ge=0, description="this gateway's own partition of chat.replies; each gateway needs another"
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description="web origins that may connect, as https://shop.example[:port], comma-separated (empty: "
        "any; set it in production)",
    )
    trusted_proxies: tuple[Annotated[IPv4Network | IPv6Network, PlainValidator(_network)], ...] = Field(
        (IPv4Network("127.0.0.1/32"), IPv6Network("::1/128")),
        description="networks whose X-Forwarded-For header gives a client's address, as 10.0.0.0/8 (empty: none)",
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        description="most connections; one more is closed with 4009. One address may hold a twentieth of "
        "them, one subject a hundredth",
    )
    max_inflight: int = Field(2_000, ge=1, description="most unanswered requests of all connections together")
    # Each stands in every cursor of its connection, and a cursor has its longest (`gateway.request.cursor`).
    max_inflight_per_connection: int = Field(4, ge=1, le=32, description="most unanswered requests of one connection")
    messages_per_minute: int = Field(100, ge=1, description="messages a minute from one connection; pongs are free")
    max_message_bytes: int = Field(
        65_536,
        ge=256,
        le=16_777_216,
        description="largest frame in bytes; a larger one closes the connection with 1009",
    )
    deflate: bool = Field(
        False,
        description="true: frames are compressed by permessage-deflate for clients that offer it; about 14 KiB more a "
        "connection",
    )
    cursor_secret_file: SecretFile | None = Field(
        None,
        description="file with the gateways' common secret, 32 bytes at least, by which a client resumes at "
        "any of them (empty: at its own only); a line end is not part of it",
    )
    hello_timeout_s: float = Field(
        5.0, gt=0, le=300, description="a connection without session.start after so many seconds is closed with 4502"
    )
    heartbeat_s: float = Field(
        25.0,
        gt=0,
        le=3_600,
        description="seconds between pings; after two without an answer the connection is closed with 4012",
    )
    buffer_close_bytes: int = Field(
        262_144,
        ge=1_024,
        description="unsent bytes of a slow client: over a quarter of it deltas are merged; over it for "
        "slow_consumer_s the connection is closed with 4008",
    )
    slow_consumer_s: float = Field(
        5.0, gt=0, le=300, description="seconds that a client may stay over buffer_close_bytes"
    )
    memory_budget_mib: int = Field(
        0,
        ge=0,
        description="memory of this process in MiB: at 92 % of it the FAQ answers, at 95 % new clients are not let "
        "in (0: no bound)",
    )
    placement: Literal["hash", "slack"] = Field(
        "slack",
        description="where a conversation's questions go. slack: to the worker that is predicted to begin soonest, as "
        "Redis notes for all gateways; hash: by its key alone",
    )
    drain_s: float = Field(
        10.0, ge=0, le=300, description="seconds that a gateway which stops waits for answers in flight"
    )

    @property
    def buffer_merge_bytes(self) -> int:
        """Over this, deltas to a slow client are merged."""
        return self.buffer_close_bytes // 4

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
        names: dict[int, str] = {}
        for name in ("port", "http_port", "grpc_port"):
            port = getattr(self, name)
            if port and port in names:
                raise ValueError(f"gateway.{names[port]} and gateway.{name} are both {port}; each door has its own")
            names[port] = name
        if self.metrics_port and self.metrics_port in names:
            raise ValueError(
                f"gateway.{names[self.metrics_port]} and gateway.metrics_port are both {self.metrics_port}; customers "
                "reach the one only"
            )
        return self

    def cursor_secret_bytes(self) -> bytes | None:
        """Return the secret that the gateways sign cursors with, None where each makes its own."""
        return read_secret(self.cursor_secret_file) if self.cursor_secret_file is not None else None


class WebhookSettings(Group):
    """An address that events are posted to, signed; `group` names the settings in error messages."""

    group: ClassVar[str]

    webhook_url: str = Field("", description="address that its events are posted to, signed (empty: none)")
    webhook_secret_file: PasswordFile | None = Field(
        None, description="file with the secret that signs them: whsec_ and 24 to 64 bytes in base64"
    )
    webhook_give_up_s: int = Field(
        3_600, ge=1, le=86_400, description="seconds after which an event that the address does not take is given up"
    )

    @model_validator(mode="after")
    def _webhook_is_whole(self) -> Self:
        secret = f"{self.group}.webhook_secret_file"
        if bool(self.webhook_url) != (self.webhook_secret_file is not None):
            raise ValueError(f"{self.group}.webhook_url and {secret} go together: set both, or neither")
        if self.webhook_url:
            check_http_url(self.webhook_url, example="https://desk.example/replyline", key_file=secret)
            self.webhook_key()
        return self

    def webhook_key(self) -> bytes:
        """Return the key that signs a webhook. Raises `ValueError`."""
        assert self.webhook_secret_file is not None
        prefix, _, text = read_password(self.webhook_secret_file).partition("_")
        try:
            key = b64decode(text, validate=True)
        except ValueError:
            key = b""
        if prefix != "whsec" or len(key) not in _WEBHOOK_KEY_BYTES:
            remedy = 'write one with echo "whsec_$(openssl rand -base64 32)"'
            raise ValueError(f"{self.group}.webhook_secret_file holds no secret: {remedy}")
        return key


class HandoffSettings(WebhookSettings):
    """When people are asked to take a conversation over. A person has to read chat.handoffs: `replyline handoffs`."""

    group = "handoff"

    enabled: bool = Field(
        False, description="true: people read chat.handoffs and answer; false: no answer offers a person"
    )
    after_fallbacks: int = Field(
        2,
        ge=0,
        le=1_000,
        description="a person is asked after so many answers in a row that were fallbacks or said that "
        "nothing is known (0: never)",
    )
    wishes: tuple[str, ...] = Field(
        (),
        description="further wordings by which customers ask for a person, each a whole clause, as a JSON list: "
        '["beam me up", "找掌柜"]',
    )
    per_minute: int = Field(
        30,
        ge=0,
        description="hand-offs a minute that one tenant's customers may ask for, at all gateways, and as many "
        "again that its fallbacks cause (0: no bound)",
    )

    @model_validator(mode="after")
    def _webhook_has_events(self) -> Self:
        if self.webhook_url and not self.enabled:
            raise ValueError("handoff.webhook_url gets no event while handoff.enabled=false: set it to true")
        return self


class AdmissionSettings(Group):
    """The bounds of what the gateway sends to the workers; the fallback answers the rest at once."""

    enabled: bool = Field(True, description="false: every request goes to the workers, without a look at their reports")


class ChatwootSettings(Group):
    """A help desk whose customers are answered first by its agent bot. It posts to /channels/chatwoot at
    `gateway.http_port`; all three go together."""

    url: str = Field("", description="its address, https://chat.example: nothing is posted elsewhere (empty: none)")
    token_file: PasswordFile | None = Field(None, description="file with the agent bot's access token")
    secret_file: PasswordFile | None = Field(None, description="file with the secret that signs the bot's webhook")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url:
            check_http_url(url, example="https://chat.example", key_file="chatwoot.token_file")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if len({bool(self.url), self.token_file is not None, self.secret_file is not None}) > 1:
            raise ValueError("chatwoot.url, chatwoot.token_file and chatwoot.secret_file go together: set all or none")
        return self

    def token(self) -> str:
        assert self.token_file is not None
        return read_password(self.token_file)

    def key(self) -> bytes:
        assert self.secret_file is not None
        return read_password(self.secret_file).encode()
