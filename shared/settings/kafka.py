"""Settings of Kafka: brokers, credentials and topics."""

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from shared.hosts import check_host
from shared.settings.credential_files import AuthorityFile, PasswordFile, read_password, tls_context
from shared.settings.group import SettingsGroup
from shared.wire.topics import TopicNames

Security = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
Compression = Literal["none", "lz4", "zstd"]
SaslMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]

_CREDENTIALS = ("username", "password_file")
_TLS_FILES = ("tls_ca", "tls_cert", "tls_key")


class KafkaSettings(SettingsGroup):
    """The brokers, how to authenticate, and the topics."""

    bootstrap_servers: str = Field("127.0.0.1:9092", description="Kafka brokers as host:port, comma-separated")
    security: Security = Field(
        "plaintext",
        description=(
            "security of the brokers' listener: plaintext, ssl (TLS), sasl_plaintext (user and password), sasl_ssl "
            "(both)"
        ),
    )
    sasl_mechanism: SaslMechanism = Field(
        "SCRAM-SHA-512",
        description="how the password is proven to the brokers; PLAIN sends it, so it is allowed only with sasl_ssl",
    )
    username: str | None = Field(
        None, description="user name for the brokers, with security=sasl_plaintext or sasl_ssl"
    )
    password_file: PasswordFile | None = Field(
        None, description="file with that user's password; a trailing line end is ignored"
    )
    tls_ca: AuthorityFile | None = Field(
        None, description="PEM file of the authorities that sign the brokers' certificates (empty: the system's)"
    )
    tls_cert: Path | None = Field(
        None, description="PEM file of this process's certificate, if the brokers ask for one"
    )
    tls_key: Path | None = Field(
        None, description="PEM file of the certificate's key, unencrypted (empty: the key is in tls_cert)"
    )
    client_rack: str = Field(
        "",
        description=(
            "zone of this process, named as in the brokers' broker.rack: it reads from the replica in that zone "
            "(empty: from the leader)"
        ),
    )
    topic_prefix: str = Field("", pattern=r"^[A-Za-z0-9._-]*$", description="prefix of every topic name")
    request_partitions: int = Field(
        24, ge=1, le=1000, description="partitions of each chat.requests topic; the maximum number of workers"
    )
    reply_partitions: int = Field(
        8, ge=1, le=1000, description="partitions of chat.replies; the maximum number of gateways"
    )
    replication_factor: int | None = Field(
        None,
        ge=1,
        le=9,
        description=(
            "replicas of the topics that `replyline topics create` makes; a process is not ready while a topic has "
            "fewer (empty: 3, or one for each broker if there are fewer than 3)"
        ),
    )
    reply_topics: tuple[str, ...] = Field(
        ("chat.replies", "chat.replies.*"),
        description="patterns of the topics to which producers may direct answers",
    )
    tenants: tuple[str, ...] = Field(
        ("*",),
        description="patterns of the tenants that a record may name; a record without one belongs to REPLYLINE_TENANT",
    )
    compression: Compression = Field(
        "none",
        description=(
            "codec of the batches that this process writes; topics created with it store replies, cancels, erasures "
            "and reports in that codec"
        ),
    )
    request_timeout_ms: int = Field(
        5_000, ge=100, le=120_000, description="timeout of a produce or fetch request, in ms"
    )
    fetch_max_wait_ms: int = Field(
        100,
        ge=1,
        le=5_000,
        description=(
            "maximum time that a fetch waits for records, in ms (cancels, versions and the inbox: 10 times that)"
        ),
    )
    session_timeout_ms: int = Field(
        6_000,
        ge=500,
        le=300_000,
        description="a worker that sends no heartbeat for this many ms loses its partitions to another worker",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _ports_are_numbers(cls, servers: str) -> str:
        found = [server.strip() for server in servers.split(",") if server.strip()]
        try:
            parts = [urlsplit(f"//{server}") for server in found]
            whole = bool(found) and all(
                part.netloc == server and bool(part.hostname) and part.port != 0 and part.username is None
                for part, server in zip(parts, found, strict=True)
            )
        except ValueError:
            whole = False
        if not whole or any(server.endswith(":") for server in found):
            raise ValueError("write host:port, or several separated by commas")
        for part in parts:
            check_host(part.hostname)
        return ",".join(found)

    @model_validator(mode="after")
    def _users_have_a_use(self) -> Self:
        if not self.uses_sasl:
            if given := self._given(_CREDENTIALS):
                raise ValueError(
                    f"kafka.{given[0]} has no effect: kafka.security={self.security} uses no login; set "
                    "kafka.security=sasl_ssl"
                )
            return self
        if self.username is None:
            raise ValueError(f"kafka.security={self.security} needs a user name; set kafka.username")
        if self.password_file is None:
            raise ValueError(f"kafka.security={self.security} needs a password; set kafka.password_file")
        if self.sasl_mechanism == "PLAIN" and not self.uses_tls:
            raise ValueError(
                f"kafka.sasl_mechanism=PLAIN sends the password, and kafka.security={self.security} encrypts nothing; "
                "set kafka.security=sasl_ssl or kafka.sasl_mechanism=SCRAM-SHA-512"
            )
        return self

    @model_validator(mode="after")
    def _tls_has_a_use(self) -> Self:
        if not self.uses_tls and (given := self._given(_TLS_FILES)):
            raise ValueError(
                f"kafka.{given[0]} has no effect: kafka.security={self.security} does not use TLS; set "
                "kafka.security=ssl or sasl_ssl"
            )
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("kafka.tls_key needs its certificate; set kafka.tls_cert")
        if self.tls_cert is not None:
            try:
                tls_context(self.tls_ca, self.tls_cert, self.tls_key)
            except OSError as error:
                raise ValueError(
                    f"kafka.tls_cert={str(self.tls_cert)!r} does not work with "
                    f"kafka.tls_key={str(self.tls_key or self.tls_cert)!r} ({error.strerror or error}); name PEM files "
                    "of a certificate and of its own key, unencrypted"
                ) from None
        return self

    def _given(self, names: tuple[str, ...]) -> list[str]:
        return [name for name in names if getattr(self, name) is not None]

    @property
    def uses_sasl(self) -> bool:
        return self.security.startswith("sasl_")

    @property
    def uses_tls(self) -> bool:
        return self.security.endswith("ssl")

    def read_password(self) -> str | None:
        """Return the password currently in the file; None if no file is set.

        Raises:
            ValueError: the file no longer contains a password.
        """
        return None if self.password_file is None else read_password(self.password_file)

    @property
    def workers_group(self) -> str:
        return f"{self.topic_prefix}replyline-workers"

    @property
    def topics(self) -> TopicNames:
        return TopicNames(self.topic_prefix)
