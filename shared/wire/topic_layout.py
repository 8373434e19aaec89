"""How the partitions of the topics fit together: pure.

A cancel is written with the key of its request. Where the partitions of `chat.cancels` divide those of the request
topics, what is cancelled of request partition p stands in partition p mod n: whoever reads the one reads the other.
"""

from collections.abc import Iterable, Mapping
from math import gcd

from shared.wire.topics import BUCKETS, TopicNames


def cancel_partitions(request_partitions: Iterable[int], num_cancel_partitions: int) -> set[int]:
    """Where the cancels of these request partitions are."""
    return {number % num_cancel_partitions for number in request_partitions}


def misfit(topics: TopicNames, num_partitions: Mapping[str, int]) -> str | None:
    """Why cancels would miss their worker, and what to do; None where they do not. `num_partitions` of the topics that
    there are, as far as they are known."""
    cancels = num_partitions.get(topics.cancels)
    requests = {topic: num for bucket in BUCKETS if (num := num_partitions.get(topic := topics.requests(bucket)))}
    odd = next((topic for topic, num in requests.items() if cancels and num % cancels), None)
    if odd is None:
        return None
    fits = gcd(*requests.values())
    return (
        f"{topics.cancels} has {cancels} partitions, and {odd} has {requests[odd]}: the former must divide the latter, "
        f"or cancels miss their worker; nothing in it is kept for long, so delete {topics.cancels} and make it anew "
        f"with {fits}: REPLYLINE_KAFKA__REQUEST_PARTITIONS={fits} replyline topics create"
    )
