"""Find out why Kafka cannot be reached, which aiokafka does not report: connect once and see which step fails."""

import ssl
from typing import Final

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from shared.errors import BrokerUnavailable
from shared.kafka.broker.options import security_options
from shared.settings.kafka import KafkaSettings
from shared.sockets.listening import host_port

_LIMIT_MS: Final = 2_000
ACLS_COMMAND: Final = "replyline topics acls"


def broker_addresses(settings: KafkaSettings) -> list[tuple[str, int]]:
    """Return host and port of each address in `bootstrap_servers`. The default port is 9092, as in aiokafka."""
    return [(host, port) for host, port, _ in collect_hosts(settings.bootstrap_servers, randomize=False)]


async def why_unreachable(settings: KafkaSettings) -> str | None:
    """Return one line with the cause and what to check, or None if a broker accepts a connection now."""
    absent = "no address in REPLYLINE_KAFKA__BOOTSTRAP_SERVERS"
    for host, port in broker_addresses(settings):
        try:
            await _look_in(settings, host, port)
        except BrokerUnavailable as error:  # a file of this process's own
            return str(error)
        except (OSError, KafkaError, TimeoutError, ValueError) as error:
            refused = refusal(error, settings, host_port(host, port))
            if refused is not None:
                return refused
            absent = str(error) or "no answer in time"
        else:
            return None
    return no_kafka(settings, absent)


def no_kafka(settings: KafkaSettings, cause: object) -> str:
    """Return one line for brokers that cannot be reached: their addresses, the cause and the remedy."""
    remedy = "start Kafka, or set REPLYLINE_KAFKA__BOOTSTRAP_SERVERS to its address"
    return f"no Kafka at {settings.bootstrap_servers}: {cause}; {remedy}"


async def _look_in(settings: KafkaSettings, host: str, port: int) -> None:
    """Connect, log in, and send an empty metadata request: a listener that requires a login closes the connection
    then."""
    limit_ms = min(_LIMIT_MS, settings.request_timeout_ms)
    connection = await create_conn(host, port, request_timeout_ms=limit_ms, **security_options(settings))
    try:
        await connection.send(MetadataRequest([]))
    finally:
        connection.close()


def refusal(error: Exception, settings: KafkaSettings, address: str) -> str | None:
    """Return what the broker refused and what to check, or None if there is no broker at the address."""
    security = f"REPLYLINE_KAFKA__SECURITY={settings.security}"
    match error:
        case SaslAuthenticationFailed():
            cause = (
                f"rejects user {settings.username!r} with this password ({settings.sasl_mechanism}): check "
                "REPLYLINE_KAFKA__USERNAME and REPLYLINE_KAFKA__PASSWORD_FILE"
            )
        case UnsupportedSaslMechanismError():
            cause = f"does not support {settings.sasl_mechanism}: check REPLYLINE_KAFKA__SASL_MECHANISM"
        case IllegalSaslStateError():
            cause = f"does not expect a login: check {security}"
        case ssl.SSLCertVerificationError():
            cause = (
                f"shows a certificate that is not trusted ({error.verify_message.rstrip('.')}): check "
                "REPLYLINE_KAFKA__TLS_CA, and that REPLYLINE_KAFKA__BOOTSTRAP_SERVERS has the certificate's name"
            )
        case ValueError():  # raised by aiokafka if the broker's own SCRAM proof is wrong
            cause = f"could not prove that it knows the password of user {settings.username!r}: is it the right broker?"
        case ssl.SSLError() | ConnectionResetError() | ConnectionAbortedError() if settings.uses_tls:
            cause = f"closes the TLS handshake: check {security} against its listener"
        case KafkaConnectionError() if isinstance(error.__cause__, ssl.SSLError):
            cause = f"rejects this process's certificate ({error.__cause__.reason}): check REPLYLINE_KAFKA__TLS_CERT"
        case KafkaConnectionError():
            cause = f"closes the connection immediately: check {security} against its listener"
        case _:
            return None
    return f"Kafka at {address} {cause}"


def unauthorized(error: KafkaError, settings: KafkaSettings, what: str) -> str:
    """Return the message for an operation that the broker's ACLs deny.

    Args:
        error: aiokafka's error, which names the topic or group.
        settings: for the user's name.
        what: the operation as a verb, such as "write to".
    """
    kind = "topic" if isinstance(error, TopicAuthorizationFailedError) else "group"
    named = f" {error.args[0]}" if error.args else ""
    who = f"user {settings.username!r}" if settings.username else "this client"
    return f"Kafka's ACLs do not allow {who} to {what} the {kind}{named}: see {ACLS_COMMAND}"
