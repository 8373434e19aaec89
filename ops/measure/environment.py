"""The machine on which a result was measured. Every result includes it."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal

from msgspec import Struct

from shared.process.hardware import cpu_name

BrokerKind = Literal["embedded", "kafka", "unknown"]

_PACKAGES: Final = ("replyline", "websockets", "uvloop", "aiokafka", "msgspec", "onnxruntime", "confluent-kafka")


class Environment(Struct, frozen=True, kw_only=True):
    date: str
    cpu: str
    cores: int
    load_1min: float
    system: str
    python: str
    versions: dict[str, str]
    engine: str
    broker: str


def environment(*, engine: str, broker: BrokerKind) -> Environment:
    return Environment(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        load_1min=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        versions=_versions(),
        engine=engine,
        broker=broker_name(broker),
    )


def broker_name(kind: BrokerKind) -> str:
    if kind == "embedded":
        import confluent_kafka

        return f"embedded (librdkafka {confluent_kafka.libversion()[0]} mock cluster)"
    if kind == "kafka":
        from ops.stack.kafka_broker import libs_dir

        jar = next(iter(sorted(libs_dir().glob("kafka-clients-*.jar"))), None)
        number = jar.stem.removeprefix("kafka-clients-") if jar else ""
        return f"Apache Kafka {number}".strip()
    return "unknown"


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
