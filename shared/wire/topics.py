"""The names of the Kafka topics, the headers and keys of their records, and the rule by which a prompt's length in
tokens selects its request topic (its bucket: short, medium or long)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from shared.wire.deadline import RESUMABLE_MS
from shared.wire.lanes import CHAMPION, LANES, Lane
from shared.wire.messages import Bucket

BUCKETS: Final[tuple[Bucket, ...]] = ("short", "medium", "long")
SHORT_MAX_TOKENS: Final = 64
MEDIUM_MAX_TOKENS: Final = 256
"""The longest inputs of the buckets short and medium, in tokens."""

CONTENT_TYPE: Final = "content-type"
CE_ID: Final = "ce_id"
CE_TYPE: Final = "ce_type"
CE_SOURCE: Final = "ce_source"
CE_SPECVERSION: Final = "ce_specversion"
TRACEPARENT: Final = "traceparent"
DEADLINE: Final = "deadline-unix-ms"
REPLY_TOPIC: Final = "reply-topic"
REPLY_PARTITION: Final = "reply-partition"
DEAD_REASON: Final = "dead-letter-reason"
DEAD_DETAIL: Final = "dead-letter-detail"
DEAD_ORIGIN: Final = "dead-letter-origin"
DEAD_LEFT_OUT: Final = "dead-letter-left-out"
DEAD_REPLAYS: Final = "dead-letter-replays"

BROADCAST_PARTITION: Final = 0
"""The only partition used of `chat.erasures`, `chat.workers`, `chat.versions`, which every process reads, and of
`chat.people`, `chat.forgotten`, `chat.observations`, `chat.demand` and `chat.scaling`. A reader does not see partitions
added later.
"""

KEPT_MS: Final = 900_000
"""Retention of questions and answers, unless a deadline may be later."""
PEOPLE_MS: Final = 86_400_000
"""Retention of what people and their customers say to each other."""
_WEEK_MS: Final = 7 * 86_400_000
_ERASURES_MS: Final = 32 * 86_400_000
OBSERVATIONS_MS: Final = 14 * 86_400_000
_SCALING_MS: Final = 28 * 86_400_000

Headers = Mapping[str, bytes]

# Legal topic names, as in org.apache.kafka.common.internals.Topic.
_LEGAL = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._\-]{1,249}")


def in_lane(name: str, lane: Lane) -> str:
    """Return the name of a lane's topic or group, given the champion's."""
    return name if lane == CHAMPION else f"{name}.{lane}"


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic's name without the prefix; accessed through `TopicNames` it has the prefix."""

    name: str

    def __get__(self, names: "TopicNames", _: type | None = None) -> str:
        return names.prefix + self.name


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of all topics. A prefix separates several systems on one broker."""

    prefix: str = ""

    inbox = _Topic("chat.requests")
    """For producers that do not count tokens; the gateways' router forwards to a bucket."""
    replies = _Topic("chat.replies")
    external_replies = _Topic("chat.replies.external")
    """Answers for producers that name no reply topic."""
    cancels = _Topic("chat.cancels")
    """Answers that are no longer needed; the key is the request's."""
    erasures = _Topic("chat.erasures")
    """Conversations that every process must forget."""
    forgotten = _Topic("chat.forgotten")
    """Conversations of which no copy outside Redis and Kafka may be kept; the key is the conversation's digest."""
    workers = _Topic("chat.workers")
    """Each worker's free capacity; the key is the worker's id."""
    versions = _Topic("chat.versions")
    """The model registry: versions, checks, and every move of an alias."""
    observations = _Topic("chat.observations")
    """How the answers of a rollout ended; its controller reads them."""
    demand = _Topic("chat.demand")
    """What each gateway's customers ask for, before admission; the key is the gateway's id."""
    scaling = _Topic("chat.scaling")
    """How many workers were wanted and found, and why; the key is the pool's name."""
    handoffs = _Topic("chat.handoffs")
    """Customers who wait for a person; people read it."""
    people = _Topic("chat.people")
    """Who answers in a conversation that a person takes, and what is said in it; gateways read it whole."""
    posts = _Topic("chat.posts")
    """Answers that gateways post to a help desk."""
    dead_letters = _Topic("chat.dead-letters")

    def requests(self, bucket: Bucket, lane: Lane = CHAMPION) -> str:
        return f"{self.prefix}{in_lane('chat.requests', lane)}.{bucket}"

    def all(self, *, request_partitions: int, reply_partitions: int) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        return {
            **{self.requests(bucket): request_partitions for bucket in BUCKETS},
            self.inbox: request_partitions,
            self.replies: reply_partitions,
            self.external_replies: 1,
            self.cancels: request_partitions,
            self.erasures: 1,
            self.forgotten: 1,
            self.workers: 1,
            self.versions: 1,
            self.observations: 1,
            self.demand: 1,
            self.scaling: 1,
            self.handoffs: 1,
            self.people: 1,
            self.posts: request_partitions,
            self.dead_letters: 1,
        }

    def of_lane(self, lane: Lane, *, request_partitions: int) -> dict[str, int]:
        """Return the number of partitions of a lane's own topics, which exist once the lane is used."""
        return {self.requests(bucket, lane): request_partitions for bucket in BUCKETS}

    def config(
        self, topic: str, *, min_in_sync: int = 1, kept_ms: int = KEPT_MS, compressed: bool = False
    ) -> dict[str, str]:
        """Return the settings with which a topic is created, other than the broker's defaults.

        Questions and answers are kept for `kept_ms`: Kafka erases no record early. The broker decompresses what a
        producer compressed, so readers need no codec, and a record that is too large after decompression is refused to
        its producer.

        Topics of state keep the newest record of each key: a worker's report and a gateway's demand, for an hour after
        the process has gone; a conversation's newest `chat.forgotten`, for as long as copies of its text may exist; and
        the registry, for ever, since each of its records has a separate key. An open segment is not compacted, so
        segments are short.

        Erasures are kept for longer than an edge may be cut off. Other topics that name a conversation are kept for a
        week. Observations are kept as long as a rollout may take, sizes of the fleet as long as forecasts look back.

        Args:
            topic: the topic's name.
            min_in_sync: the replicas that must store a record before it is acknowledged.
            kept_ms: how long questions and answers are kept.
            compressed: the broker stores compressed records unchanged if only gateways and workers write and read them.
        """
        as_it_came = compressed and topic in {self.replies, self.cancels, self.erasures, self.workers}
        compression = "producer" if as_it_came else "uncompressed"
        config = {"compression.type": compression, "min.insync.replicas": str(min_in_sync)}
        if topic in {self.inbox, self.replies, self.external_replies, self.posts} or self.bucket_of(topic) is not None:
            config |= {"retention.ms": str(kept_ms), "segment.ms": str(kept_ms // 3)}
        timed = {self.inbox, self.cancels, self.erasures, self.people, self.forgotten}
        if topic in timed or self.bucket_of(topic) is not None:
            # finds records by their time of arrival, which does not depend on producers' clocks
            config["message.timestamp.type"] = "LogAppendTime"
        if topic in {self.workers, self.demand}:
            config |= {"cleanup.policy": "compact,delete", "retention.ms": "3600000", "segment.ms": "600000"}
        if topic in {self.versions, self.forgotten}:
            config["cleanup.policy"] = "compact"
        if topic in {self.cancels, self.handoffs, self.dead_letters}:
            config["retention.ms"] = str(_WEEK_MS)
        if topic == self.erasures:
            config["retention.ms"] = str(_ERASURES_MS)
        if topic == self.people:
            config |= {"retention.ms": str(PEOPLE_MS), "segment.ms": str(PEOPLE_MS // 24)}
        if topic == self.observations:
            config["retention.ms"] = str(OBSERVATIONS_MS)
        if topic == self.scaling:
            config["retention.ms"] = str(_SCALING_MS)
        return config

    def bucket_of(self, topic: str) -> Bucket | None:
        """Return the bucket of a request topic of any lane; None for another topic."""
        return next((bucket for lane in LANES for bucket in BUCKETS if topic == self.requests(bucket, lane)), None)


def kept_ms(max_deadline_ms: int) -> int:
    """Return the retention of questions and answers: long enough for the longest deadline."""
    return max(KEPT_MS, max_deadline_ms + RESUMABLE_MS)


def bucket_of_length(num_tokens: int) -> Bucket:
    """Return the bucket of an input with this many tokens."""
    if num_tokens <= SHORT_MAX_TOKENS:
        return "short"
    return "medium" if num_tokens <= MEDIUM_MAX_TOKENS else "long"


def bucket_of_text(text: str, count: Callable[[str], int]) -> Bucket:
    """Return the bucket of a text. Its tokens are counted only if its number of bytes does not decide, since a token
    has at least one byte.
    """
    return "short" if surely_short(text) else bucket_of_length(count(text))


def surely_short(text: str) -> bool:
    return len(text) * 4 <= SHORT_MAX_TOKENS or len(text.encode()) <= SHORT_MAX_TOKENS


def reply_topic_allowed(topic: str, patterns: Sequence[str]) -> bool:
    """Return whether a producer may direct its answers to this topic.

    Args:
        topic: the topic; a name that is illegal in Kafka is never allowed.
        patterns: shell patterns of allowed topics.
    """
    return _LEGAL.fullmatch(topic) is not None and any(fnmatchcase(topic, pattern) for pattern in patterns)
