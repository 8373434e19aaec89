"""The rights that each process needs on the brokers: `replyline topics acls`, docs/security.md.

The right to read or write a topic includes the right to describe it. Idempotent producers need no extra right: a client
that may write to any topic gets a producer id (KIP-679).
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from shared.errors import SettingsError
from shared.settings import Settings
from shared.wire.lanes import CHAMPION, LANES, PASSED_ON, SHADOW, Lane
from shared.wire.topics import BUCKETS, in_lane

Role = Literal["gateway", "worker", "operator", "recorder"]
Operation = Literal["Read", "Write", "Create", "Describe", "DescribeConfigs", "Alter"]
ROLES: Final[tuple[Role, ...]] = ("gateway", "worker", "operator", "recorder")

_WILDCARDS: Final = frozenset("*?[]")


@dataclass(frozen=True, slots=True)
class Right:
    """One right. `prefixed`: it applies to every name that begins with `name`. `why` is for people."""

    role: Role
    operation: Operation
    kind: Literal["topic", "group"]
    name: str
    why: str
    prefixed: bool = False


def rights(settings: Settings) -> list[Right]:
    """Return the rights of all roles, as needed by gateways, workers and `replyline topics`, `diagnose`, `dlq`,
    `handoffs` and `record`. Raises `SettingsError` for a pattern of reply topics that ACLs cannot express."""
    return [*_of_gateways(settings), *_of_workers(settings), *_of_operators(settings), *_of_recorders(settings)]


def _of_gateways(settings: Settings) -> Iterator[Right]:
    prefix, topics = settings.kafka.topic_prefix, settings.kafka.topics
    for bucket in BUCKETS:
        yield Right("gateway", "Write", "topic", topics.requests(bucket), "customers' requests, by length")
    for lane in LANES[1:]:
        yield Right("gateway", "Write", "topic", _topics_of(settings, lane), "requests of a lane", prefixed=True)
    for lane in PASSED_ON:
        yield Right(
            "gateway", "Read", "topic", _topics_of(settings, lane), "requests of a lane without workers", prefixed=True
        )
    left = f"{settings.kafka.workers_group}."
    yield Right("gateway", "Read", "group", left, "which gateway forwards which records", prefixed=True)
    yield Right("gateway", "Write", "topic", topics.cancels, "what customers stop")
    yield Right("gateway", "Write", "topic", topics.erasures, "what customers erase")
    yield Right("gateway", "Write", "topic", topics.forgotten, "conversations of which no copy may be kept")
    yield Right(
        "gateway", "Write", "topic", topics.replies, "ends decided by this gateway, for clients that resume elsewhere"
    )
    yield Right("gateway", "Write", "topic", topics.handoffs, "customers who wait for a person")
    yield Right("gateway", "Write", "topic", topics.people, "what people and their customers say")
    yield Right("gateway", "Write", "topic", topics.observations, "how a rollout's answers ended")
    yield Right("gateway", "Write", "topic", topics.demand, "what customers ask, before admission")
    yield Right("gateway", "Write", "topic", topics.dead_letters, "what it cannot route")
    for right in _to_reply_topics(settings, "gateway", "errors for requests that cannot be routed"):
        if right.name != topics.replies:
            yield right
    yield Right("gateway", "Read", "topic", topics.replies, "answers, and other gateways' for clients that resume")
    yield Right("gateway", "Read", "topic", topics.workers, "workers' reports of their capacity")
    yield Right("gateway", "Read", "topic", topics.erasures, "what other gateways' customers erase")
    yield Right("gateway", "Read", "topic", topics.people, "what people and their customers say at other gateways")
    yield Right("gateway", "Read", "topic", topics.versions, "which version serves which requests")
    yield Right("gateway", "Read", "topic", topics.inbox, "other services' requests, to be routed")
    yield from _to_see_copies(settings, "gateway")
    yield Right("gateway", "Read", "group", f"{prefix}replyline-router", "which gateway routes which records")
    if settings.handoff.webhook_url:
        yield Right("gateway", "Read", "topic", topics.handoffs, "hand-offs, to be posted")
        yield Right("gateway", "Read", "group", f"{prefix}replyline-webhook", "which gateway posts which records")
    if settings.chatwoot.url:
        yield Right("gateway", "Write", "topic", topics.posts, "answers that a help desk waits for")
        yield Right("gateway", "Read", "topic", topics.posts, "answers, to be posted")
        yield Right("gateway", "Read", "group", f"{prefix}replyline-chatwoot", "which gateway posts which records")


def _of_workers(settings: Settings) -> Iterator[Right]:
    kafka, topics, lane = settings.kafka, settings.kafka.topics, settings.worker.lane
    for bucket in BUCKETS:
        yield Right("worker", "Read", "topic", topics.requests(bucket, lane), "requests to be answered")
        if lane in PASSED_ON:
            yield Right("worker", "Write", "topic", topics.requests(bucket), "requests forwarded from a closed lane")
    yield Right("worker", "Read", "topic", topics.cancels, "what customers stop")
    yield Right("worker", "Read", "topic", topics.erasures, "what customers erase")
    yield Right("worker", "Read", "topic", topics.versions, "which version it serves")
    yield Right("worker", "Read", "group", in_lane(kafka.workers_group, lane), "which worker answers which requests")
    yield Right("worker", "Write", "topic", topics.workers, "reports of its capacity")
    if lane == SHADOW:  # no process reads its replies
        yield Right("worker", "Write", "topic", topics.observations, "how its answers compare with those given")
    else:
        yield Right("worker", "Write", "topic", topics.dead_letters, "what cannot be served")
        yield from _to_reply_topics(settings, "worker", "answers")
    yield from _to_see_copies(settings, "worker", lane)


def _topics_of(settings: Settings, lane: Lane) -> str:
    """Return the common prefix of a lane's topics."""
    return settings.kafka.topics.requests("short", lane).removesuffix("short")


def _to_see_copies(settings: Settings, role: Role, lane: Lane = CHAMPION) -> Iterator[Right]:
    topics = settings.kafka.topics
    kept = (topics.replies, topics.versions, topics.erasures, topics.forgotten)
    for name in (*(topics.requests(bucket, lane) for bucket in BUCKETS), *kept):
        yield Right(role, "DescribeConfigs", "topic", name, "how many copies an acknowledgement means, and how kept")


def _to_reply_topics(settings: Settings, role: Role, why: str) -> Iterator[Right]:
    """Yield the rights on reply topics. Raises `SettingsError`."""
    for pattern in settings.kafka.reply_topics:
        name = settings.kafka.topic_prefix + pattern.removesuffix("*")
        if _WILDCARDS & set(name):
            raise SettingsError(
                f"REPLYLINE_KAFKA__REPLY_TOPICS has {pattern!r}: ACLs support names, and prefixes with one * at the "
                "end; list the topics"
            )
        # A pattern that matches everything has no prefix; Kafka writes it as a literal star.
        yield Right(role, "Write", "topic", name or "*", why, prefixed=bool(name) and pattern.endswith("*"))


def _of_operators(settings: Settings) -> Iterator[Right]:
    topics = settings.kafka.topics
    yield Right("operator", "Create", "topic", topics.inbox.removesuffix("requests"), "`topics create`", prefixed=True)
    yield Right("operator", "Describe", "topic", topics.inbox.removesuffix("requests"), "`topics`", prefixed=True)
    yield Right("operator", "Alter", "topic", topics.inbox, "`topics grow`", prefixed=True)
    yield Right("operator", "Describe", "group", settings.kafka.workers_group, "`diagnose`: what waits", prefixed=True)
    yield Right("operator", "Read", "topic", topics.dead_letters, "`dlq list`, `show`")
    yield Right("operator", "Read", "topic", topics.handoffs, "`handoffs list`, `follow`")
    for name in (topics.erasures, topics.forgotten):
        yield Right("operator", "Read", "topic", name, "`learn`: which corrections must go")
        yield Right("operator", "DescribeConfigs", "topic", name, "`learn`: whether they are kept long enough")
    for operation in ("Read", "Write"):
        yield Right("operator", operation, "topic", topics.versions, "`versions`, `rollout`")
        yield Right("operator", operation, "topic", topics.scaling, "`autoscale`: how many workers were wanted")
    yield Right("operator", "Read", "topic", topics.workers, "`versions use`: who has loaded what")
    yield Right(
        "operator", "Read", "topic", topics.observations, "`rollout`, `shadow report`: the evidence about a version"
    )
    prefix = settings.kafka.topic_prefix
    yield Right("operator", "Read", "group", f"{prefix}replyline-rollout", "`rollout`: which controller leads")
    yield Right("operator", "Read", "topic", topics.demand, "`autoscale`: what is asked; `rollout`: how gateways are")
    autoscalers = f"{prefix}replyline-autoscale-"
    yield Right("operator", "Read", "group", autoscalers, "`autoscale`: which one leads a pool", prefixed=True)
    yield Right("operator", "Write", "topic", topics.inbox, "`dlq replay`")
    yield Right("operator", "Write", "topic", f"{topics.inbox}.", "`dlq replay`", prefixed=True)


def _of_recorders(settings: Settings) -> Iterator[Right]:
    """Yield the recorder's rights. It needs no group, because it reads from the end of the topics and commits
    nothing."""
    topics = settings.kafka.topics
    for bucket in BUCKETS:
        yield Right("recorder", "Read", "topic", topics.requests(bucket), "what is asked, and when")
    yield Right("recorder", "Read", "topic", topics.forgotten, "whose words must leave the recording")


def commands(found: Sequence[Right], users: Mapping[Role, str], bootstrap_servers: str) -> list[str]:
    """Return `kafka-acls.sh` lines that grant the rights: one line for all names with the same operation, after a
    comment with their purposes. Roles without a user are omitted."""
    brokers = f"--bootstrap-server {shlex.quote(bootstrap_servers)} --command-config admin.properties"
    lines: list[str] = []
    for role in ROLES:
        if role not in users:
            continue
        ours = sorted((right for right in found if right.role == role), key=_alike)
        for (operation, kind, prefixed), alike in groupby(ours, _alike):
            group = list(alike)
            names = " ".join(f"--{kind} {shlex.quote(right.name)}" for right in group)
            pattern = "prefixed" if prefixed else "literal"
            who = f"--allow-principal {shlex.quote(f'User:{users[role]}')}"
            what = f"--operation {operation} {names} --resource-pattern-type {pattern}"
            whys = "; ".join(dict.fromkeys(right.why for right in group))
            lines += [f"# {role}, {operation}: {whys}", f"kafka-acls.sh {brokers} --add {who} {what}"]
    return lines


def _alike(right: Right) -> tuple[Operation, str, bool]:
    return right.operation, right.kind, right.prefixed
