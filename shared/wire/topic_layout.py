"""Fit the partitions of the topics together, and decide and how often what they hold is kept: pure.

What is cancelled of request partition p stands in partition p mod n of `chat.cancels`: whoever reads the one reads the
other. A producer's cancel stands there by its key alone, where n divides the partitions of the request topics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from shared.wire.topics import TopicNames

_COPIES: Final = 3  # with two of them acknowledged one broker may be lost, and another be away


@dataclass(frozen=True, slots=True)
class TopicCopies:
    """A topic on so many brokers: of each record so many `replicas`, of which `in_sync` are up to date now and
    `min_in_sync` must be for it to be acknowledged, kept for `kept_ms`; None where this user may not ask for that.
    `config` has its other settings that were asked for."""

    topic: str
    brokers: int
    replicas: int
    in_sync: int
    min_in_sync: int | None = None
    kept_ms: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


def wanted_replicas(configured: int | None, brokers: int) -> int:
    """Return the number of copies that the settings want, else as many copies as there are brokers for."""
    return configured or min(_COPIES, max(1, brokers))


def min_in_sync_of(replicas: int) -> int:
    """Return the number of copies that must have a record before it is acknowledged: more than half."""
    return replicas // 2 + 1


def weakness(found: TopicCopies, configured: int | None) -> str | None:
    """Return why what is acknowledged may be lost with one broker, and what to do; None where it is not, or where the
    settings say that so few copies will do."""
    wanted = wanted_replicas(configured, found.brokers)
    if found.replicas < wanted:
        return (
            f"{found.topic} keeps {found.replicas} of {wanted} copies, on {found.brokers} brokers: what Kafka has "
            "acknowledged goes with one of them; reassign its partitions, or delete it and type: replyline topics "
            f"create; if so few will do: REPLYLINE_KAFKA__REPLICATION_FACTOR={found.replicas}"
        )
    least = min_in_sync_of(wanted)
    if found.min_in_sync is not None and found.min_in_sync < least:
        return (
            f"{found.topic} acknowledges what {found.min_in_sync} of {found.replicas} copies have: it goes with one "
            f"broker; kafka-configs.sh --alter --entity-type topics --entity-name {found.topic} --add-config "
            f"min.insync.replicas={least}"
        )
    return None


def broken_promise(found: TopicCopies, wanted: Mapping[str, str]) -> str | None:
    """Return which setting of a topic, that an operator or the broker itself may have created, breaks what we rely on,
    and what to do: what is `wanted` of it, as `TopicNames.config` says. None if none is known to."""
    settings = {"cleanup.policy": "delete", **wanted}
    for name, value in settings.items():
        has = found.config.get(name, value)
        is_kept = name == "retention.ms" and (int(has) < 0 or int(has) >= int(value))
        if name not in PROMISED or is_kept or set(has.split(",")) == set(value.split(",")):
            continue
        remedy = f"kafka-configs.sh --alter --entity-type topics --entity-name {found.topic} --add-config"
        return f"{found.topic} has {name}={has}, where {value} is needed; {remedy} {name}=[{value}]"
    return None


PROMISED: Final = ("cleanup.policy", "retention.ms", "message.timestamp.type")
"""What a topic's own settings promise its readers, beside its copies: by them a record is still there, or is found."""


def cancel_partitions(request_partitions: Iterable[int], num_cancel_partitions: int) -> set[int]:
    """Return the partitions that hold the cancels of these request partitions."""
    return {cancel_partition(number, num_cancel_partitions) for number in request_partitions}


def cancel_partition(request_partition: int, num_cancel_partitions: int) -> int:
    """Return the partition that holds the cancels of a request partition."""
    return request_partition % num_cancel_partitions


def misfit(topics: TopicNames, num_partitions: Mapping[str, int]) -> str | None:
    """Why cancels would miss their worker, and what to do; None where they do not. `num_partitions` of the topics that
    there are, as far as they are known."""
    cancels = num_partitions.get(topics.cancels)
    requests = {topic: num for topic, num in num_partitions.items() if num and topics.bucket_of(topic) is not None}
    odd = next((topic for topic, num in requests.items() if cancels and num % cancels), None)
    if odd is None:
        return None
    fits = gcd(*requests.values())
    return (
        f"{topics.cancels} has {cancels} partitions, and {odd} has {requests[odd]}: the former must divide the latter, "
        f"or cancels miss their worker; nothing in it is kept for long, so delete {topics.cancels} and make it anew "
        f"with {fits}: REPLYLINE_KAFKA__REQUEST_PARTITIONS={fits} replyline topics create"
    )
