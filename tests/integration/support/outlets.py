"""Every output where a customer's words could appear, apart from the topics and keys meant to contain them."""

import json
from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer
from redis.asyncio import Redis

from tests.support.system import System
from tests.support.tap import Tap

HOLD_WORDS = ("chat.requests", "chat.requests.short", "chat.requests.medium", "chat.requests.long", "chat.dead-letters")
PAGES = ("/metrics", "/health", "/ready")


async def outlets(system: System) -> dict[str, str]:
    """Return each process's logs and pages; each topic's keys and headers, including traces and dead letters' metadata,
    and values that are no requests; the names of Redis keys.
    """
    told = {f"log of {service.log.name}": service.log.read_text() for service in system.services}
    for service in system.services:
        for path in PAGES:
            page = await service.get(path)
            assert page is not None
            told[f"{path} of {service.log.name}"] = f"{page.headers} {page.body.decode()}"
    for topic, records in (await everything(system)).items():
        told[f"keys of {topic}"] = _text(record.key for record in records)
        told[f"headers of {topic}"] = _text(part for record in records for pair in record.headers for part in pair)
        if topic not in HOLD_WORDS:
            told[f"values of {topic}"] = _text(record.value for record in records)
    async with Redis.from_url(system.redis.url) as redis:
        told["names in Redis"] = _text([key async for key in redis.scan_iter(count=1_000)])
    return told


async def everything(system: System) -> dict[str, list[object]]:
    """Return all current records of each topic, by the topic's name without its prefix."""
    topics = list(system.topics)
    async with AIOKafkaConsumer(*topics, bootstrap_servers=system.bootstrap, auto_offset_reset="earliest") as consumer:
        records = await Tap(consumer).to_the_end()
    found: dict[str, list[object]] = {topic.removeprefix(system.prefix): [] for topic in topics}
    for record in records:
        found[record.topic.removeprefix(system.prefix)].append(record)
    return found


def leaks(told: Mapping[str, str], words: Iterable[str]) -> list[tuple[str, str]]:
    """Return which of the words appear where, literally or as JSON, Python or MessagePack would encode them."""
    wanted = [(word, {word, json.dumps(word)[1:-1], repr(word)[1:-1], repr(word.encode())[2:-1]}) for word in words]
    return [(place, word) for place, text in told.items() for word, forms in wanted if any(f in text for f in forms)]


def _text(parts: Iterable[bytes | str | None]) -> str:
    return "\n".join(
        part.decode(errors="backslashreplace") if isinstance(part, bytes) else part or "" for part in parts
    )
