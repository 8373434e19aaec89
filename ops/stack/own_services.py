"""The settings of Kafka and Redis for a command that starts them itself: on this machine, without authentication."""

from collections.abc import Mapping
from typing import Final, Literal

from shared.settings.kafka import KafkaSettings

Broker = Literal["embedded", "kafka"]

# Empty means unset: values for real services in the environment or a file do not apply here.
OWN_SERVICES: Final[Mapping[str, str]] = {
    "KAFKA__SECURITY": "plaintext",
    "KAFKA__USERNAME": "",
    "KAFKA__PASSWORD_FILE": "",
    "KAFKA__TLS_CA": "",
    "KAFKA__TLS_CERT": "",
    "KAFKA__TLS_KEY": "",
    "REDIS__PASSWORD_FILE": "",
    "REDIS__TLS_CA": "",
    "REDIS__CLUSTER": "false",
    "KV_REDIS__URL": "",
    "KV_REDIS__PASSWORD_FILE": "",
    "KV_REDIS__TLS_CA": "",
    "KV_REDIS__CLUSTER": "false",
}


def own_kafka(settings: KafkaSettings, bootstrap_servers: str) -> KafkaSettings:
    """Return Kafka's settings for other servers with the same topics."""
    return settings.model_copy(update={"bootstrap_servers": bootstrap_servers, "security": "plaintext"})
