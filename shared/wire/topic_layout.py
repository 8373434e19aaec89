"""Check that the topics' numbers of partitions fit together, and decide their replication and retention. Pure.

A cancel has to reach the worker that reads the request's partition p. `chat.cancels` has fewer partitions, n, so the
cancel is written to partition p mod n, and each worker reads the partitions of `chat.cancels` that belong to its own
request partitions. A producer outside of Replyline needs no such calculation if n divides the number of request
partitions: then the hash of the record's key leads to the right partition.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Final

from shared.wire.topics import TopicNames

_COPIES: Final = 3  # with two acknowledged copies, one broker may be lost while another is down


@dataclass(frozen=True, slots=True)
class TopicCopies:
    """A topic's replication and settings.

    Attributes:
        brokers: number of brokers in the cluster.
        replicas: copies of each record.
        in_sync: copies that are up to date now.
        min_in_sync: copies that must be up to date for an acknowledgement; None if this user may not read it.
        kept_ms: retention; None if this user may not read it.
        config: the other settings that were asked for.
    """

    topic: str
    brokers: int
    replicas: int
    in_sync: int
    min_in_sync: int | None = None
    kept_ms: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)


def wanted_replicas(configured: int | None, brokers: int) -> int:
    """Return the configured number of copies, else three or one for each broker."""
    return configured or min(_COPIES, max(1, brokers))


def min_in_sync_of(replicas: int) -> int:
    """Return how many copies must have a record before it is acknowledged: more than half."""
    return replicas // 2 + 1


def weakness(found: TopicCopies, configured: int | None) -> str | None:
    """Return why acknowledged records may be lost with one broker, and what to do.

    Returns:
        None if they are safe, or if the settings ask for this few copies.
    """
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
    """Return which of a topic's settings differs from what its readers rely on, and what to do; None if none does.

    A topic may have been created by an operator or automatically by the broker.

    Args:
        found: the topic's settings.
        wanted: the settings that it should have, from `TopicNames.config`.
    """
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
"""The topic settings that readers rely on besides replication: they decide whether a record still exists and is
found."""


def cancel_partitions(request_partitions: Iterable[int], num_cancel_partitions: int) -> set[int]:
    """Return the partitions of `chat.cancels` for these request partitions."""
    return {cancel_partition(number, num_cancel_partitions) for number in request_partitions}


def cancel_partition(request_partition: int, num_cancel_partitions: int) -> int:
    """Return the partition of `chat.cancels` for a request partition."""
    return request_partition % num_cancel_partitions


def misfit(topics: TopicNames, num_partitions: Mapping[str, int]) -> str | None:
    """Return why cancels would not reach their worker, and what to do; None if they do.

    Args:
        topics: the topics' names.
        num_partitions: partitions of the existing topics, as far as known.
    """
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
