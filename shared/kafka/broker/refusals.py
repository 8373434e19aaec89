"""Find out why Kafka cannot be reached: aiokafka does not say. A connection is made and closed again, to see at which
step it fails."""

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
    """Host and port of each of `bootstrap_servers`, as aiokafka takes them: without a port it is 9092."""
    return [(host, port) for host, port, _ in collect_hosts(settings.bootstrap_servers, randomize=False)]


async def why_unreachable(settings: KafkaSettings) -> str | None:
    """One line: what a broker refuses and what to check, or that nobody answers; None where one lets us in now."""
    absent = "no address in kafka.bootstrap_servers"
    for host, port in broker_addresses(settings):
        try:
            await _look_in(settings, host, port)
        except BrokerUnavailable as error:  # our own files
            return str(error)
        except (OSError, KafkaError, TimeoutError, ValueError) as error:
            refused = refusal(error, settings, host_port(host, port))
            if refused is not None:
                return refused
            absent = str(error) or "no answer in time"
        else:
            return None
    return f"no Kafka at {settings.bootstrap_servers}: {absent}"


async def _look_in(settings: KafkaSettings, host: str, port: int) -> None:
    """Connect, log in, and ask for nothing: a listener that wants a password hangs up on who comes without."""
    limit_ms = min(_LIMIT_MS, settings.request_timeout_ms)
    connection = await create_conn(host, port, request_timeout_ms=limit_ms, **security_options(settings))
    try:
        await connection.send(MetadataRequest([]))
    finally:
        connection.close()


def refusal(error: Exception, settings: KafkaSettings, address: str) -> str | None:
    """Return what a broker that is there has refused, and what to check; None where nobody is there."""
    security = f"kafka.security={settings.security}"
    match error:
        case SaslAuthenticationFailed():
            cause = (
                f"does not let user {settings.username!r} in with this password by {settings.sasl_mechanism}: check "
                "kafka.username and kafka.password_file"
            )
        case UnsupportedSaslMechanismError():
            cause = f"takes no {settings.sasl_mechanism}: check kafka.sasl_mechanism"
        case IllegalSaslStateError():
            cause = f"asks for no password: check {security}"
        case ssl.SSLCertVerificationError():
            cause = (
                f"shows a certificate that is not trusted ({error.verify_message.rstrip('.')}): check kafka.tls_ca, "
                "and that kafka.bootstrap_servers has the name that the certificate is for"
            )
        case ValueError():  # aiokafka's word for a wrong proof of the broker's
            cause = f"does not know the password of user {settings.username!r} itself: is it the right broker?"
        case ssl.SSLError() | ConnectionResetError() | ConnectionAbortedError() if settings.uses_tls:
            cause = f"breaks off TLS: check {security} against its listener"
        case KafkaConnectionError() if isinstance(error.__cause__, ssl.SSLError):
            cause = f"wants another certificate of this process ({error.__cause__.reason}): check kafka.tls_cert"
        case KafkaConnectionError():
            cause = f"hangs up at once: check {security} against its listener"
        case _:
            return None
    return f"Kafka at {address} {cause}"


def unauthorized(error: KafkaError, settings: KafkaSettings, what: str) -> str:
    """Return the error of `what` the broker's ACLs do not let this user do."""
    kind = "topic" if isinstance(error, TopicAuthorizationFailedError) else "group"
    named = f" {error.args[0]}" if error.args else ""
    who = f"user {settings.username!r}" if settings.username else "this client"
    return f"Kafka's ACLs do not let {who} {what} the {kind}{named}: see {ACLS_COMMAND}"
