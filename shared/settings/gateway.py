"""Settings of the gateway: addresses, limits, webhooks, and admission to the workers."""

from base64 import b64decode
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, field_validator, model_validator

from shared.hosts import WEB, check_url
from shared.settings.auth import SecretFile, read_secret
from shared.settings.credential_files import PasswordFile, read_password
from shared.settings.group import SettingsGroup
from shared.settings.origins import is_serialized_origin


class QuotaSettings(SettingsGroup):
    """Units that a client may use in a minute. Each kind of message costs a number of units."""

    subject_per_minute: int = Field(
        120, ge=0, description="units a minute for one subject of a token, summed over all gateways (0: unlimited)"
    )
    tenant_per_minute: int = Field(
        0, ge=0, description="units a minute for one tenant's clients, summed over all gateways (0: unlimited)"
    )
    address_per_minute: int = Field(
        1_200, ge=0, description="units a minute for one client address (IPv6: its /64) at each gateway (0: unlimited)"
    )


_WEBHOOK_KEY_BYTES = range(24, 65)  # Standard Webhooks


def _network(value: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError:
        raise ValueError(
            f"{value!r} is not a network: write its first address and its prefix length, as 10.0.0.0/8"
        ) from None


class GatewaySettings(SettingsGroup):
    """The gateway's listeners and limits: one port for customers (WebSocket and page), one for operators (health,
    metrics)."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address that the gateway listens on for clients (:: is every IPv4 and IPv6 address)",
    )
    port: int = Field(8080, ge=0, le=65_535, description="port for clients: WebSocket and page (0: any free port)")
    metrics_host: str = Field(
        "127.0.0.1", min_length=1, description="address of /metrics, /health and /ready (:: is every address)"
    )
    metrics_port: int = Field(
        8082, ge=0, le=65_535, description="port of /metrics, /health, /ready and /drain (0: any free port)"
    )
    http_port: int = Field(0, ge=0, le=65_535, description="port of the HTTP APIs, such as OpenAI's (0: disabled)")
    grpc_port: int = Field(0, ge=0, le=65_535, description="port of the gRPC API (0: disabled)")
    openai_models: tuple[str, ...] = Field(
        ("replyline",), min_length=1, description="model names accepted from clients of the OpenAI API, comma-separated"
    )
    reply_partition: int = Field(
        0, ge=0, description="partition of chat.replies that this gateway reads; no other gateway may have the same one"
    )
    allowed_origins: tuple[str, ...] = Field(
        (),
        description=(
            "web origins that may connect, as https://shop.example[:port], comma-separated (empty: any; set it in "
            "production)"
        ),
    )
    trusted_proxies: tuple[Annotated[IPv4Network | IPv6Network, PlainValidator(_network)], ...] = Field(
        (IPv4Network("127.0.0.1/32"), IPv6Network("::1/128")),
        description=(
            "networks of proxies whose X-Forwarded-For header is trusted as the client's address, as 10.0.0.0/8 "
            "(empty: none)"
        ),
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        description=(
            "maximum connections; a further one is closed with 4009. One address may use a twentieth of them, one "
            "subject a hundredth"
        ),
    )
    max_inflight: int = Field(2_000, ge=1, description="maximum unanswered requests over all connections")
    # Every unanswered request adds to the size of the connection's cursor, which is limited (`gateway.request.cursor`).
    max_inflight_per_connection: int = Field(
        4, ge=1, le=32, description="maximum unanswered requests of one connection"
    )
    messages_per_minute: int = Field(
        100, ge=1, description="messages a minute accepted from one connection; pongs are not counted"
    )
    max_message_bytes: int = Field(
        65_536,
        ge=256,
        le=16_777_216,
        description="maximum size of a frame in bytes; a larger one closes the connection with 1009",
    )
    deflate: bool = Field(
        False,
        description=(
            "true: compress frames with permessage-deflate for clients that offer it; costs about 14 KiB of memory a "
            "connection"
        ),
    )
    cursor_secret_file: SecretFile | None = Field(
        None,
        description=(
            "file with the secret that all gateways share, at least 32 bytes, so that a client can resume an answer "
            "at any of them (empty: only at the same gateway); a trailing line end is ignored"
        ),
    )
    hello_timeout_s: float = Field(
        5.0,
        gt=0,
        le=300,
        description="seconds after which a connection that has not sent session.start is closed with 4502",
    )
    heartbeat_s: float = Field(
        25.0,
        gt=0,
        le=3_600,
        description="seconds between pings; a connection that leaves two unanswered is closed with 4012",
    )
    buffer_close_bytes: int = Field(
        262_144,
        ge=1_024,
        description=(
            "limit for unsent bytes of a slow client: above a quarter of it deltas are merged; above it for "
            "slow_consumer_s the connection is closed with 4008"
        ),
    )
    slow_consumer_s: float = Field(
        5.0, gt=0, le=300, description="seconds that a client may stay above buffer_close_bytes"
    )
    memory_budget_mib: int = Field(
        0,
        ge=0,
        description=(
            "memory budget of this process in MiB: at 92 % the FAQ answers instead of workers, at 95 % new "
            "connections are rejected (0: unlimited)"
        ),
    )
    placement: Literal["hash", "slack"] = Field(
        "slack",
        description=(
            "how a conversation's partition is chosen. slack: the worker predicted to start soonest, as recorded in "
            "Redis for all gateways; hash: a hash of the conversation's key"
        ),
    )
    drain_s: float = Field(
        10.0, ge=0, le=300, description="seconds that a stopping gateway waits for answers in flight"
    )

    @property
    def buffer_merge_bytes(self) -> int:
        """Return the number of unsent bytes above which deltas to a slow client are merged."""
        return self.buffer_close_bytes // 4

    @field_validator("allowed_origins")
    @classmethod
    def _origins_are_as_browsers_write_them(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        """Reject an origin that no browser sends, because it would never match."""
        for origin in origins:
            if not is_serialized_origin(origin):
                raise ValueError(
                    f"{origin!r} is not an origin: write scheme://host or scheme://host:port as a browser does, in "
                    "lower case, without path, trailing slash, wildcard or the scheme's default port"
                )
        return origins

    @model_validator(mode="after")
    def _operators_have_a_port_of_their_own(self) -> Self:
        names: dict[int, str] = {}
        for name in ("port", "http_port", "grpc_port"):
            port = getattr(self, name)
            if port and port in names:
                raise ValueError(f"gateway.{names[port]} and gateway.{name} are both {port}; give each its own port")
            names[port] = name
        if self.metrics_port and self.metrics_port in names:
            raise ValueError(
                f"gateway.{names[self.metrics_port]} and gateway.metrics_port are both {self.metrics_port}; give the "
                "metrics a port that customers cannot reach"
            )
        return self

    def cursor_secret_bytes(self) -> bytes | None:
        """Return the secret that signs cursors; None if each gateway generates its own."""
        return read_secret(self.cursor_secret_file) if self.cursor_secret_file is not None else None


class WebhookSettings(SettingsGroup):
    """A URL to which events are posted with a signature. `group` is the settings' prefix in error messages."""

    group: ClassVar[str]

    webhook_url: str = Field("", description="URL to which events are posted, signed (empty: none)")
    webhook_secret_file: PasswordFile | None = Field(
        None, description="file with the secret that signs the events: whsec_ followed by 24 to 64 bytes in base64"
    )
    webhook_give_up_s: int = Field(
        3_600, ge=1, le=86_400, description="seconds after which an event that could not be delivered is dropped"
    )

    @field_validator("webhook_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url:
            login = f"events are signed: set {cls.group}.webhook_secret_file"
            check_url(url, WEB, base=True, form="https://desk.example/replyline", login=login)
        return url

    @model_validator(mode="after")
    def _webhook_is_whole(self) -> Self:
        secret = f"{self.group}.webhook_secret_file"
        if bool(self.webhook_url) != (self.webhook_secret_file is not None):
            raise ValueError(f"{self.group}.webhook_url and {secret} belong together: set both, or neither")
        if self.webhook_url:
            self.webhook_key()
        return self

    def webhook_key(self) -> bytes:
        """Return the key that signs webhook events.

        Raises:
            ValueError: the file does not contain a valid secret.
        """
        assert self.webhook_secret_file is not None
        prefix, _, text = read_password(self.webhook_secret_file).partition("_")
        try:
            key = b64decode(text, validate=True)
        except ValueError:
            key = b""
        if prefix != "whsec" or len(key) not in _WEBHOOK_KEY_BYTES:
            remedy = 'write one with echo "whsec_$(openssl rand -base64 32)"'
            raise ValueError(f"{self.group}.webhook_secret_file contains no valid secret: {remedy}")
        return key


class HandoffSettings(WebhookSettings):
    """When a conversation is handed off to a person. A person has to read chat.handoffs: `replyline handoffs`."""

    group = "handoff"

    enabled: bool = Field(
        False,
        description=(
            "true: conversations can be handed off; a person has to read chat.handoffs; false: no answer offers a "
            "person"
        ),
    )
    after_fallbacks: int = Field(
        2,
        ge=0,
        le=1_000,
        description=(
            'hand a conversation off after this many fallbacks or "nothing is known" answers in a row (0: never)'
        ),
    )
    silent_s: int = Field(
        600,
        ge=10,
        le=86_400,
        description=(
            "seconds that a person may leave a customer without a reply; then the conversation waits again and the "
            "model answers"
        ),
    )
    wishes: tuple[str, ...] = Field(
        (),
        description=(
            'further phrases by which customers ask for a person, each a whole clause, as a JSON list: ["beam me up", '
            '"找掌柜"]'
        ),
    )
    per_minute: int = Field(
        30,
        ge=0,
        description=(
            "hand-offs a minute that one tenant's customers may ask for, summed over all gateways; as many again may "
            "be caused by fallbacks (0: unlimited)"
        ),
    )

    @model_validator(mode="after")
    def _webhook_has_events(self) -> Self:
        if self.webhook_url and not self.enabled:
            raise ValueError(
                "handoff.webhook_url receives no events because handoff.enabled=false; set handoff.enabled=true"
            )
        return self


class AdmissionSettings(SettingsGroup):
    """Whether the gateway checks that workers can answer a request in time. If they cannot, the fallback answers
    immediately."""

    enabled: bool = Field(
        True, description="false: send every request to the workers without checking their capacity reports"
    )


class ChatwootSettings(SettingsGroup):
    """A Chatwoot help desk whose customers are answered first by its agent bot.

    Chatwoot posts to /channels/chatwoot at `gateway.http_port`. Set all three settings, or none.
    """

    url: str = Field(
        "", description="Chatwoot's base URL, https://chat.example; answers are posted only there (empty: disabled)"
    )
    token_file: PasswordFile | None = Field(None, description="file with the agent bot's access token")
    secret_file: PasswordFile | None = Field(
        None, description="file with the secret that signs the agent bot's webhook"
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url:
            login = "put the bot's token into the file of chatwoot.token_file"
            check_url(url, WEB, base=True, form="https://chat.example", login=login)
        return url.rstrip("/")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if len({bool(self.url), self.token_file is not None, self.secret_file is not None}) > 1:
            raise ValueError(
                "chatwoot.url, chatwoot.token_file and chatwoot.secret_file belong together: set all or none"
            )
        return self

    def token(self) -> str:
        assert self.token_file is not None
        return read_password(self.token_file)

    def key(self) -> bytes:
        assert self.secret_file is not None
        return read_password(self.secret_file).encode()
