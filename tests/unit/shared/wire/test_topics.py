"""A request's topic, and the topics its answer may go to."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.tokenizer import Tokenizer, bpe_definition
from shared.wire.session_key import SessionKey
from shared.wire.topics import (
    BUCKETS,
    TopicNames,
    bucket_of_length,
    bucket_of_text,
    reply_topic_allowed,
    surely_short,
)

BYTE_LEVEL = Tokenizer.byte_level()
MERGING = Tokenizer(
    bpe_definition(
        ["<|end|>", *"abcdefgh", "ab", "abcd"], merges=[("a", "b")], special_ids=[0], added_ids=[10], split_digits=False
    )
)
# Each tokenizer has a token for at least one byte, none for less.
COUNTERS: list[Callable[[str], int]] = [
    BYTE_LEVEL.count,
    lambda text: len(text.encode()),
    len,
    lambda text: len(text.split()),
    lambda text: -(-len(text.encode()) // 4),
]


@pytest.mark.parametrize(
    ("num_tokens", "bucket"),
    [(0, "short"), (1, "short"), (64, "short"), (65, "medium"), (256, "medium"), (257, "long"), (10**9, "long")],
)
def test_a_length_on_the_edge_belongs_to_the_shorter_bucket(num_tokens: int, bucket: str) -> None:
    assert bucket_of_length(num_tokens) == bucket


@given(st.text(max_size=80) | st.text("ab 你é😀", max_size=400))
def test_a_text_that_is_short_by_its_bytes_counts_as_short(text: str) -> None:
    for count in COUNTERS:
        assert bucket_of_text(text, count) == bucket_of_length(count(text))


@given(st.text("abcdefgh", max_size=400))
def test_merges_never_make_a_text_longer_than_its_bytes(text: str) -> None:
    assert bucket_of_text(text, MERGING.count) == bucket_of_length(MERGING.count(text))


@pytest.mark.parametrize(
    ("text", "short"), [("a" * 64, True), ("a" * 65, False), ("é" * 32, True), ("é" * 33, False), ("😀" * 16, True)]
)
def test_bytes_decide_that_a_text_is_short(text: str, short: bool) -> None:
    assert surely_short(text) is short


def test_tokens_are_not_counted_if_the_bytes_decide() -> None:
    counted: list[str] = []
    assert bucket_of_text("hi", lambda text: counted.append(text) or 1) == "short"
    assert counted == []


@pytest.mark.parametrize("prefix", ["", "test."])
def test_a_bucket_is_derived_from_its_topic(prefix: str) -> None:
    topics = TopicNames(prefix)
    assert [topics.bucket_of(topics.requests(bucket)) for bucket in BUCKETS] == list(BUCKETS)
    assert topics.bucket_of(topics.inbox) is None
    assert topics.bucket_of("other" + topics.requests("short")) is None


def test_topics_have_the_protocols_names() -> None:
    assert TopicNames().all(request_partitions=12, reply_partitions=8) == {
        "chat.requests.short": 12,
        "chat.requests.medium": 12,
        "chat.requests.long": 12,
        "chat.requests": 12,
        "chat.replies": 8,
        "chat.replies.external": 1,
        "chat.cancels": 12,
        "chat.erasures": 1,
        "chat.forgotten": 1,
        "chat.workers": 1,
        "chat.versions": 1,
        "chat.observations": 1,
        "chat.demand": 1,
        "chat.scaling": 1,
        "chat.handoffs": 1,
        "chat.people": 1,
        "chat.posts": 12,
        "chat.dead-letters": 1,
    }
    assert all(name.startswith("x.") for name in TopicNames("x.").all(request_partitions=1, reply_partitions=1))


@pytest.mark.parametrize(
    ("topic", "patterns", "allowed"),
    [
        ("chat.replies", ("chat.replies", "chat.replies.*"), True),
        ("chat.replies.crm", ("chat.replies", "chat.replies.*"), True),
        ("chat.repliesX", ("chat.replies", "chat.replies.*"), False),
        ("chat.requests.short", ("chat.replies", "chat.replies.*"), False),
        ("CHAT.REPLIES", ("chat.replies",), False),
        ("anything", (), False),
        ("", ("chat.replies",), False),
    ],
)
def test_answers_go_only_to_topics_on_the_allow_list(topic: str, patterns: tuple[str, ...], allowed: bool) -> None:
    assert reply_topic_allowed(topic, patterns) is allowed


def test_a_conversation_has_one_key() -> None:
    assert SessionKey("demo", "sess_1").record_key == b"demo/sess_1"


@pytest.mark.parametrize("prefix", ["", "test."])
def test_worker_reports_are_compacted_and_customer_topics_use_the_brokers_time(
    prefix: str,
) -> None:
    topics = TopicNames(prefix)
    every = topics.all(request_partitions=1, reply_partitions=1)
    customers = {topics.inbox, topics.cancels, topics.erasures, topics.people, topics.forgotten}
    timed = customers | {topics.requests(bucket) for bucket in BUCKETS}
    assert {name for name in every if "message.timestamp.type" in topics.config(name)} == timed
    compacted = {name for name in every if "cleanup.policy" in topics.config(name)}
    assert compacted == {topics.workers, topics.demand, topics.versions, topics.forgotten}
    assert topics.config(topics.forgotten)["cleanup.policy"] == "compact", "an erasure of any age is applied"
    for name in every:
        config = topics.config(name)
        assert config.get("cleanup.policy") == "compact" or int(config["retention.ms"]) > 0, (
            f"{name}: retained for how long?"
        )
    assert {topics.config(name)["compression.type"] for name in every} == {"uncompressed"}
    packed = {name for name in every if topics.config(name, compressed=True)["compression.type"] == "producer"}
    assert packed == {topics.replies, topics.cancels, topics.erasures, topics.workers}
    assert {topics.config(name)["message.timestamp.type"] for name in timed} == {"LogAppendTime"}
    assert "compact" in topics.config(topics.workers)["cleanup.policy"]
    said = {
        topics.inbox,
        topics.replies,
        topics.external_replies,
        topics.posts,
        *(topics.requests(bucket) for bucket in BUCKETS),
    }
    short = {name for name in every if topics.config(name).get("retention.ms") == "900000"}
    assert short == said, "customers' words and answers are not kept for a week"
    assert topics.config(topics.replies, kept_ms=3_600_000)["retention.ms"] == "3600000"
    assert {topics.config(name, min_in_sync=2)["min.insync.replicas"] for name in every} == {"2"}
