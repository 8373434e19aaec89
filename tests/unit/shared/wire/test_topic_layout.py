"""A cancel is in the partition read by the worker that has its request; otherwise no process starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.producer import partition_of
from shared.wire.session_key import SessionKey
from shared.wire.topic_layout import (
    TopicCopies,
    broken_promise,
    cancel_partitions,
    min_in_sync_of,
    misfit,
    wanted_replicas,
    weakness,
)
from shared.wire.topics import TopicNames

TOPICS = TopicNames()


def layout(short: int, medium: int, long: int, cancels: int) -> dict[str, int]:
    return {
        "chat.requests.short": short,
        "chat.requests.medium": medium,
        "chat.requests.long": long,
        "chat.cancels": cancels,
    }


@pytest.mark.parametrize("fits", [(4, 4, 4, 4), (4, 4, 4, 1), (12, 4, 8, 4), (4, 4, 4, 0), (0, 0, 0, 3), (6, 0, 0, 3)])
def test_topics_with_matching_partition_counts_are_accepted(fits: tuple[int, int, int, int]) -> None:
    """0 means a missing topic, which other checks report."""
    assert misfit(TOPICS, layout(*fits)) is None


@pytest.mark.parametrize(
    "known", [("chat.requests.long", "chat.cancels"), ("chat.requests.long",), ("chat.cancels",), ()]
)
def test_an_unknown_topic_is_ignored(known: tuple[str, ...]) -> None:
    seen = {"chat.requests.long": 12, "chat.cancels": 3}
    assert misfit(TOPICS, {topic: seen[topic] for topic in known}) is None


def test_mismatched_topics_are_named_with_the_command_to_type() -> None:
    why = misfit(TOPICS, layout(12, 8, 4, 3))
    assert why is not None
    assert "chat.cancels has 3 partitions, and chat.requests.medium has 8" in why
    assert why.endswith("REPLYLINE_KAFKA__REQUEST_PARTITIONS=4 replyline topics create")
    assert "\n" not in why


def test_a_lanes_topics_count_too() -> None:
    why = misfit(TOPICS, layout(4, 4, 4, 4) | {"chat.requests.canary.short": 6})
    assert why is not None
    assert "chat.cancels has 4 partitions, and chat.requests.canary.short has 6" in why


@given(st.text(max_size=40), st.sampled_from([(4, 4), (4, 2), (12, 4), (1_000, 100), (7, 1)]), st.data())
def test_the_reader_of_a_request_reads_its_cancel(session: str, nums: tuple[int, int], data: st.DataObject) -> None:
    requests, cancels = nums
    key = SessionKey("demo", session).record_key
    held = {partition_of(key, requests), *data.draw(st.sets(st.integers(0, requests - 1)))}
    assert partition_of(key, cancels) in cancel_partitions(held, cancels)


def test_with_equal_partition_counts_a_worker_reads_no_other_cancels() -> None:
    assert cancel_partitions({3, 17}, 1_000) == {3, 17}


@pytest.mark.parametrize(
    ("told", "brokers", "wanted"), [(None, 1, 1), (None, 2, 2), (None, 7, 3), (1, 3, 1), (5, 3, 5)]
)
def test_the_wanted_replication_is_limited_by_the_brokers(told: int | None, brokers: int, wanted: int) -> None:
    assert wanted_replicas(told, brokers) == wanted


@pytest.mark.parametrize(("replicas", "least"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_min_insync_replicas_is_more_than_half_of_the_replicas(replicas: int, least: int) -> None:
    assert min_in_sync_of(replicas) == least


ALL = TOPICS.all(request_partitions=1, reply_partitions=1)


@pytest.mark.parametrize("topic", ALL)
def test_each_auto_created_topic_is_named_unless_the_defaults_suffice(topic: str) -> None:
    """Kafka's defaults delete after a week and trust the producer's timestamp."""
    defaults = {"cleanup.policy": "delete", "retention.ms": "604800000", "message.timestamp.type": "CreateTime"}
    wanted = TOPICS.config(topic)
    assert broken_promise(TopicCopies(topic, 1, 1, 1, config=defaults | wanted), wanted) is None
    assert broken_promise(TopicCopies(topic, 1, 1, 1), wanted) is None, "this user may not ask"
    why = broken_promise(TopicCopies(topic, 1, 1, 1, config=defaults), wanted)
    will_do = {TOPICS.replies, TOPICS.external_replies, TOPICS.posts, TOPICS.handoffs, TOPICS.dead_letters}
    assert (why is None) == (topic in will_do)
    if why is not None:
        name, value = why.rsplit(" ", 1)[1].split("=", 1)
        assert value == f"[{wanted[name]}]"


@pytest.mark.parametrize(
    ("topic", "setting", "value", "is_broken"),
    [
        (TOPICS.forgotten, "cleanup.policy", "delete", True),
        (TOPICS.forgotten, "cleanup.policy", "compact,delete", True),
        (TOPICS.demand, "cleanup.policy", "delete,compact", False),
        (TOPICS.requests("short"), "cleanup.policy", "compact", True),
        (TOPICS.observations, "retention.ms", "60000", True),
        (TOPICS.observations, "retention.ms", "-1", False),
        (TOPICS.erasures, "message.timestamp.type", "CreateTime", True),
    ],
)
def test_a_setting_that_loses_records_early_is_named(topic: str, setting: str, value: str, is_broken: bool) -> None:
    wanted = TOPICS.config(topic)
    why = broken_promise(TopicCopies(topic, 1, 1, 1, config=wanted | {setting: value}), wanted)
    assert (f"{topic} has {setting}={value}" in str(why)) == is_broken


@pytest.mark.parametrize(
    ("found", "told", "says"),
    [
        (TopicCopies("t", 1, 1, 1, 1), None, None),
        (TopicCopies("t", 3, 3, 2, 2), None, None),
        (TopicCopies("t", 3, 3, 3, None), None, None),
        (TopicCopies("t", 3, 1, 1, 1), 1, None),
        (TopicCopies("t", 3, 1, 1, 1), None, "t keeps 1 of 3 copies"),
        (TopicCopies("t", 3, 3, 3, 1), None, "min.insync.replicas=2"),
        (TopicCopies("t", 1, 1, 1, 1), 3, "t keeps 1 of 3 copies"),
    ],
)
def test_a_topic_lost_with_one_broker_is_too_weak_unless_allowed(
    found: TopicCopies, told: int | None, says: str | None
) -> None:
    """The number of in-sync replicas at the moment is no reason: a broker may be away."""
    why = weakness(found, told)
    assert (why is None) == (says is None)
    assert says is None or says in str(why)
