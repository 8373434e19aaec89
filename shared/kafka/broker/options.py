"""The options by which every client of aiokafka reaches the brokers and logs in."""

from typing import Any, Final

from shared.errors import BrokerUnavailable
from shared.settings.credential_files import tls_context
from shared.settings.kafka import KafkaSettings

_UNHURRIED: Final = 10


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the options of a client's constructor. The files are read each time: a password or a certificate that was
    renewed counts from the next client on. Raises `BrokerUnavailable` where one of them is no longer to be used."""
    options = security_options(settings)
    return {"bootstrap_servers": settings.bootstrap_servers, **options}


def security_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the connection's options without the addresses. Raises `BrokerUnavailable`."""
    options: dict[str, Any] = {"security_protocol": settings.security.upper()}
    if settings.uses_tls:
        try:
            options["ssl_context"] = tls_context(settings.tls_ca, settings.tls_cert, settings.tls_key)
        except OSError as error:
            raise BrokerUnavailable(
                f"no TLS with {settings.bootstrap_servers}: {error.strerror or error}; check kafka.tls_ca, "
                "kafka.tls_cert and kafka.tls_key"
            ) from error
    if settings.uses_sasl:
        try:
            password = settings.read_password()
        except ValueError as error:
            raise BrokerUnavailable(f"kafka.password_file={str(settings.password_file)!r}: {error}") from None
        options |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.username,
            "sasl_plain_password": password,
        }
    return options


def consumer_options(settings: KafkaSettings, client_id: str, *, unhurried: bool = False) -> dict[str, Any]:
    """Return the options of a consumer that commits nothing by itself, and reads no record of a transaction that was
    aborted or is open. `unhurried`: records may come a little later, and cost less. Raises `BrokerUnavailable` as
    `connection_options`."""
    fetch_max_wait_ms = settings.fetch_max_wait_ms * (_UNHURRIED if unhurried else 1)
    return {
        **connection_options(settings),
        "client_id": client_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "fetch_max_wait_ms": fetch_max_wait_ms,
        "request_timeout_ms": settings.request_timeout_ms + fetch_max_wait_ms,
        "retry_backoff_ms": 50,
        "check_crcs": False,
        "client_rack": settings.client_rack or None,
    }
