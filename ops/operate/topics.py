"""Create, describe and grow the topics that the settings require, with the remedy for each one that does not match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.errors import SettingsError
from shared.kafka import create_topics, describe_topics, grow_topics, more_partitions_command
from shared.nouns import counted
from shared.settings.kafka import KafkaSettings
from shared.wire.lanes import LANES
from shared.wire.topic_layout import misfit
from shared.wire.topics import BUCKETS, kept_ms

_CREATE: Final = "create them: replyline topics create"


@dataclass(frozen=True, slots=True)
class Told:
    """The result of a command. `remedies` is empty if each topic has at least the required number of partitions."""

    lines: list[str]
    remedies: list[str]


async def create(kafka: KafkaSettings, wanted: Mapping[str, int], *, max_deadline_ms: int = 0) -> Told:
    """Create the missing topics; existing ones are not changed. Questions and answers are retained for as long as they
    may be needed.

    Args:
        kafka: the settings
        wanted: the number of partitions of each topic
        max_deadline_ms: the longest deadline allowed, which determines the retention

    Raises:
        BrokerUnavailable: Kafka is unavailable
    """
    outcomes = await create_topics(kafka, wanted, kept_ms=kept_ms(max_deadline_ms))
    seen = await describe_topics(kafka) if "exists" in outcomes.values() else {}
    found = {name: wanted[name] if outcome == "created" else seen.get(name) for name, outcome in outcomes.items()}
    lines = [
        f"{name}: {outcome}" + ("" if (number := found[name]) is None else f", {counted(number, 'partition')}")
        for name, outcome in outcomes.items()
    ]
    return Told(lines, _remedies(kafka, found, wanted))


async def describe(kafka: KafkaSettings, wanted: Mapping[str, int]) -> Told:
    """Describe the topics in `wanted`, which maps topics to partitions. Raises `BrokerUnavailable`."""
    found = await describe_topics(kafka)
    lines = [f"{name}: {counted(found[name], 'partition')}" if name in found else f"{name}: missing" for name in wanted]
    missing = [_CREATE] if any(name not in found for name in wanted) else []
    return Told(lines, [*missing, *_remedies(kafka, found, wanted)])


async def grow(kafka: KafkaSettings, partitions: int) -> list[str]:
    """Increase the number of partitions of every lane's request topics, the champion's first, because other lanes'
    requests are forwarded to it. Return a line per topic. Raises `SettingsError`, `BrokerUnavailable`."""
    found = await describe_topics(kafka)
    names = [name for lane in LANES for bucket in BUCKETS if (name := kafka.topics.requests(bucket, lane)) in found]
    if not names:
        raise SettingsError(f"{kafka.topics.requests('short')} is missing; {_CREATE}")
    most = max(names, key=lambda name: found[name])
    if found[most] > partitions:
        why = f"{most} has {found[most]}, and Kafka cannot remove partitions; use {found[most]} or more"
        raise SettingsError(f"--partitions {partitions}: {why}")
    if over := partitions % (num_cancels := found.get(kafka.topics.cancels, 1)):
        why = (
            f"the {num_cancels} of {kafka.topics.cancels} must divide it, or other services' cancels miss their worker"
        )
        raise SettingsError(f"--partitions {partitions}: {why}; use {partitions - over + num_cancels}")
    await grow_topics(kafka, {name: partitions for name in names if found[name] < partitions})
    return [f"{name}: {found[name]} → {counted(partitions, 'partition')}" for name in names]


def _remedies(kafka: KafkaSettings, found: Mapping[str, int | None], wanted: Mapping[str, int]) -> list[str]:
    """Return the commands to type. In `found`, None means that this user may not see the number of partitions. Request
    partitions limit the number of workers, reply partitions the number of gateways; fewer partitions of other topics do
    no harm."""
    seen = {name: has for name, has in found.items() if has is not None}
    odd = misfit(kafka.topics, seen)
    few = [
        f"{name}: has {counted(has, 'partition')}, wanted {number}: {command}"
        for name, number in wanted.items()
        if (has := seen.get(name, number)) < number and (command := _more_partitions(kafka, name, number)) is not None
    ]
    return few if odd is None else [*few, odd]


def _more_partitions(kafka: KafkaSettings, topic: str, number: int) -> str | None:
    if kafka.topics.bucket_of(topic) is not None:
        return f"replyline topics grow --partitions {number}"
    return more_partitions_command(kafka, topic, number) if topic == kafka.topics.replies else None
