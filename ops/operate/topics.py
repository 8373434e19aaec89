"""The topics that the settings want, made and looked at: a line each, and what is to be typed where one is not so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.kafka import create_topics, describe_topics, more_partitions_command
from shared.settings.kafka import KafkaSettings
from shared.wire.topic_layout import misfit
from shared.wire.topics import kept_ms

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
        f"{name}: {outcome}" if (number := found[name]) is None else f"{name}: {outcome}, {number} partitions"
        for name, outcome in outcomes.items()
    ]
    return Told(lines, _remedies(kafka, found, wanted))


async def describe(kafka: KafkaSettings, wanted: Mapping[str, int]) -> Told:
    """Topic → partitions. Raises `BrokerUnavailable`."""
    found = await describe_topics(kafka)
    lines = [f"{name}: {found[name]} partitions" if name in found else f"{name}: missing" for name in wanted]
    missing = [_CREATE] if any(name not in found for name in wanted) else []
    return Told(lines, [*missing, *_remedies(kafka, found, wanted)])


def _remedies(kafka: KafkaSettings, found: Mapping[str, int | None], wanted: Mapping[str, int]) -> list[str]:
    """Return what to type; `None`: this user may not see how many partitions there are."""
    seen = {name: has for name, has in found.items() if has is not None}
    odd = misfit(kafka.topics, seen)
    few = [
        f"{name}: has {has} partitions, wanted {number}: {more_partitions_command(kafka, name, number)}"
        for name, number in wanted.items()
        if (has := seen.get(name, number)) < number and (odd is None or name != kafka.topics.cancels)
    ]
    return few if odd is None else [*few, odd]
