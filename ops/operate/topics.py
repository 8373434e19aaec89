"""The topics that the settings want, made, looked at and grown: a line each, and what is to be typed where one is not
so."""

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
    """`remedies` is empty where each topic is there with as many partitions as are wanted, or more."""

    lines: list[str]
    remedies: list[str]


async def create(kafka: KafkaSettings, wanted: Mapping[str, int], *, max_deadline_ms: int = 0) -> Told:
    """Create the topics that are missing; topic → partitions. What is there stays as it is. Questions and answers are
    kept until nobody can want them any more. Raises `BrokerUnavailable`."""
    outcomes = await create_topics(kafka, wanted, kept_ms=kept_ms(max_deadline_ms))
    seen = await describe_topics(kafka) if "exists" in outcomes.values() else {}
    found = {name: wanted[name] if outcome == "created" else seen.get(name) for name, outcome in outcomes.items()}
    lines = [
        f"{name}: {outcome}" + ("" if (number := found[name]) is None else f", {counted(number, 'partition')}")
        for name, outcome in outcomes.items()
    ]
    return Told(lines, _remedies(kafka, found, wanted))


async def describe(kafka: KafkaSettings, wanted: Mapping[str, int]) -> Told:
    """Topic → partitions. Raises `BrokerUnavailable`."""
    found = await describe_topics(kafka)
    lines = [f"{name}: {counted(found[name], 'partition')}" if name in found else f"{name}: missing" for name in wanted]
    missing = [_CREATE] if any(name not in found for name in wanted) else []
    return Told(lines, [*missing, *_remedies(kafka, found, wanted)])


async def grow(kafka: KafkaSettings, partitions: int) -> list[str]:
    """Give the request topics of every lane that has them so many partitions, the champion's first: others are passed
    on to it. Return what was done, a line a topic. Raises `SettingsError`, `BrokerUnavailable`."""
    found = await describe_topics(kafka)
    names = [name for lane in LANES for bucket in BUCKETS if (name := kafka.topics.requests(bucket, lane)) in found]
    if not names:
        raise SettingsError(f"{kafka.topics.requests('short')} is missing; {_CREATE}")
    most = max(names, key=lambda name: found[name])
    if found[most] > partitions:
        why = f"{most} has {found[most]}, and Kafka takes none away; type {found[most]} or more"
        raise SettingsError(f"--partitions {partitions}: {why}")
    if over := partitions % (num_cancels := found.get(kafka.topics.cancels, 1)):
        why = (
            f"the {num_cancels} of {kafka.topics.cancels} must divide it, or other services' cancels miss their worker"
        )
        raise SettingsError(f"--partitions {partitions}: {why}; type {partitions - over + num_cancels}")
    await grow_topics(kafka, {name: partitions for name in names if found[name] < partitions})
    return [f"{name}: {found[name]} → {counted(partitions, 'partition')}" for name in names]


def _remedies(kafka: KafkaSettings, found: Mapping[str, int | None], wanted: Mapping[str, int]) -> list[str]:
    """Return what to type; `None`: this user may not see how many partitions there are. Of request topics they bound
    the workers, of replies the gateways; with fewer of the others all works."""
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
