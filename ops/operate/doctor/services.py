"""Check that Kafka and Redis answer, accept our credentials, and keep records as needed. For `replyline doctor`."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from redis.exceptions import RedisError

from ops.operate.doctor.kv_memory import RedisMemory, redis_memory
from shared.errors import BrokerUnavailable
from shared.kafka import Producer, broker_addresses, why_unreachable
from shared.redis.client import addresses_of, blocking_redis, cause_of
from shared.settings import Settings
from shared.settings.redis import RedisAddress
from shared.sockets.listening import host_port
from shared.wire.topic_layout import TopicCopies
from shared.wire.topics import BUCKETS

_CONNECT_TIMEOUT_S: Final = 1.0
_COPIES_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """Facts about the services. Addresses map to whether a server answers there. `has_kv_redis`: KV is in another Redis
    than the history."""

    kafka: Mapping[str, bool] = field(default_factory=dict)
    kafka_refusal: str | None = None
    copies: Sequence[TopicCopies] = ()
    broken_promises: Sequence[str] = ()
    told_replicas: int | None = None
    redis: Mapping[str, bool] = field(default_factory=dict)
    redis_refusals: Sequence[str] = ()
    history_memory: RedisMemory | None = None
    kv_memory: RedisMemory | None = None
    has_kv_redis: bool = False


def service_facts(settings: Settings) -> ServiceFacts:
    """Query the services that the settings name."""
    kafka = {host_port(*address): _answers(address) for address in broker_addresses(settings.kafka)}
    copies, broken = asyncio.run(_copies(settings)) if any(kafka.values()) else ([], [])
    servers = {_redis_name(each): each for each in (settings.redis, settings.redis_of_kv)}
    redis = {name: any(map(_answers, _redis_addresses(each))) for name, each in servers.items()}
    return ServiceFacts(
        kafka=kafka,
        kafka_refusal=asyncio.run(why_unreachable(settings.kafka)) if any(kafka.values()) else None,
        copies=copies,
        broken_promises=broken,
        told_replicas=settings.kafka.replication_factor,
        redis=redis,
        redis_refusals=[
            why for name, each in servers.items() if redis[name] and (why := redis_refusal(each)) is not None
        ],
        history_memory=redis_memory(settings.redis, timeout_s=_CONNECT_TIMEOUT_S),
        kv_memory=redis_memory(settings.redis_of_kv, timeout_s=_CONNECT_TIMEOUT_S),
        has_kv_redis=settings.redis_of_kv is not settings.redis,
    )


async def _copies(settings: Settings) -> tuple[list[TopicCopies], list[str]]:
    """Return the replicas of the topics with customers' texts, and the topics whose configuration does not suit their
    readers; both empty if Kafka does not answer."""
    names = settings.kafka.topics
    producer, found = Producer(settings.kafka, client_id="replyline-doctor"), list[TopicCopies]()
    broken: list[str] = []
    try:
        async with asyncio.timeout(_COPIES_S):
            await producer.start()
            for name in (*map(names.requests, BUCKETS), names.replies):
                with suppress(BrokerUnavailable):
                    found.append(await producer.copies(name, whole=True))
            broken = await producer.broken_promises(names.all(request_partitions=1, reply_partitions=1))
    except TimeoutError:
        pass
    finally:
        await producer.stop()
    return found, broken


def _redis_addresses(settings: RedisAddress) -> list[tuple[str, int] | str]:
    """Return the addresses of the server, of a cluster's nodes or of the sentinels in the URL; for a unix socket its
    path."""
    return [address if address[0] else urlsplit(settings.url).path for address in addresses_of(settings)]


def _redis_name(settings: RedisAddress) -> str:
    return ",".join(
        address if isinstance(address, str) else host_port(*address) for address in _redis_addresses(settings)
    )


def _answers(address: tuple[str, int] | str) -> bool:
    """Return whether a server accepts connections at a host's port or at a unix socket's path."""
    try:
        if isinstance(address, str):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_CONNECT_TIMEOUT_S)
                connection.connect(address)
                return True
        with socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def redis_refusal(settings: RedisAddress) -> str | None:
    """Return why Redis refuses us with these settings; None if it accepts us."""
    client = blocking_redis(settings, timeout_ms=_CONNECT_TIMEOUT_S * 1_000)
    try:
        client.ping()
    except (RedisError, OSError, ValueError) as error:
        return cause_of(error)
    finally:
        client.close()
    return None
