"""Connection and login options of every aiokafka client."""

from typing import Any, Final

from shared.errors import BrokerUnavailable
from shared.settings.credential_files import tls_context
from shared.settings.kafka import KafkaSettings

_UNHURRIED: Final = 10


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the connection options for a client's constructor.

    Password and certificate files are read at each call, so that the next client uses a renewed one.

    Raises:
        BrokerUnavailable: a file cannot be used.
    """
    options = security_options(settings)
    return {"bootstrap_servers": settings.bootstrap_servers, **options}


def security_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return the security options without the brokers' addresses.

    Raises:
        BrokerUnavailable: a file cannot be used.
    """
    options: dict[str, Any] = {"security_protocol": settings.security.upper()}
    if settings.uses_tls:
        try:
            options["ssl_context"] = tls_context(settings.tls_ca, settings.tls_cert, settings.tls_key)
        except OSError as error:
            raise BrokerUnavailable(
                f"no TLS with {settings.bootstrap_servers}: {error.strerror or error}; check REPLYLINE_KAFKA__TLS_CA, "
                "REPLYLINE_KAFKA__TLS_CERT and REPLYLINE_KAFKA__TLS_KEY"
            ) from error
    if settings.uses_sasl:
        try:
            password = settings.read_password()
        except ValueError as error:
            raise BrokerUnavailable(
                f"REPLYLINE_KAFKA__PASSWORD_FILE={str(settings.password_file)!r}: {error}"
            ) from None
        options |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.username,
            "sasl_plain_password": password,
        }
    return options


def consumer_options(settings: KafkaSettings, client_id: str, *, unhurried: bool = False) -> dict[str, Any]:
    """Return the options of a consumer.

    It does not commit automatically, and it does not return records of aborted or open transactions.

    Args:
        settings: the brokers and their credentials.
        client_id: the client's name at the brokers.
        unhurried: fetch less often: records arrive a little later and cost less.

    Raises:
        BrokerUnavailable: a file cannot be used.
    """
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
