"""`replyline topics` says how many partitions a topic really has, and what gives it more."""

from collections.abc import Mapping

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from ops.operate import topics
from shared.errors import SettingsError
from shared.kafka import PartitionReader
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BUCKETS, KEPT_MS

KAFKA = KafkaSettings(bootstrap_servers="a:1,b:2")
ALTER = "kafka-topics.sh --bootstrap-server a:1,b:2 --alter --topic"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The topics on it, each with its partitions."""
    there: dict[str, int] = {}

    async def create(_: KafkaSettings, wanted: Mapping[str, int], *, kept_ms: int) -> dict[str, str]:
        assert kept_ms == KEPT_MS
        outcomes = {name: "exists" if name in there else "created" for name in wanted}
        there.update({name: number for name, number in wanted.items() if name not in there})
        return outcomes

    async def describe(_: KafkaSettings) -> dict[str, int]:
        return dict(there)

    monkeypatch.setattr(topics, "create_topics", create)

    async def grow(_: KafkaSettings, more: Mapping[str, int]) -> None:
        there.update(more)

    monkeypatch.setattr(topics, "describe_topics", describe)
    monkeypatch.setattr(topics, "grow_topics", grow)
    return there


async def test_what_is_there_with_too_few_partitions_is_not_said_to_have_those_wanted(broker: dict[str, int]) -> None:
    broker |= {"chat.requests.short": 4, "chat.replies": 4, "enough": 8, "more": 16, "chat.posts": 4}
    wanted = dict.fromkeys(("new", *broker), 8)
    told = await topics.create(KAFKA, wanted)
    assert told.lines == [
        "new: created, 8 partitions",
        "chat.requests.short: exists, 4 partitions",
        "chat.replies: exists, 4 partitions",
        "enough: exists, 8 partitions",
        "more: exists, 16 partitions",
        "chat.posts: exists, 4 partitions",
    ]
    assert told.remedies == [
        "chat.requests.short: has 4 partitions, wanted 8: replyline topics grow --partitions 8",
        f"chat.replies: has 4 partitions, wanted 8: {ALTER} chat.replies --partitions 8",
    ]
    assert (await topics.describe(KAFKA, wanted)).remedies == told.remedies


async def test_of_a_topic_that_this_user_may_not_see_no_number_is_said(
    broker: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker["hidden"] = 1

    async def describe(_: KafkaSettings) -> dict[str, int]:
        return {}

    monkeypatch.setattr(topics, "describe_topics", describe)
    assert await topics.create(KAFKA, {"hidden": 8}) == topics.Told(["hidden: exists"], [])


async def test_what_is_missing_and_what_is_too_small_have_each_its_remedy(broker: dict[str, int]) -> None:
    broker["chat.replies"] = 4
    told = await topics.describe(KAFKA, {"new": 1, "chat.replies": 8})
    assert told.lines == ["new: missing", "chat.replies: 4 partitions"]
    assert [remedy.partition(":")[0] for remedy in told.remedies] == ["create them", "chat.replies"]


async def test_cancels_that_would_miss_their_worker_have_one_remedy(broker: dict[str, int]) -> None:
    wanted = KAFKA.topics.all(request_partitions=4, reply_partitions=1)
    broker |= wanted | {"chat.cancels": 3}
    (remedy,) = (await topics.describe(KAFKA, wanted)).remedies
    assert remedy.startswith("chat.cancels has 3 partitions, and chat.requests.short has 4")
    assert (await topics.create(KAFKA, wanted)).remedies == [remedy]
    broker["chat.cancels"] = 2
    assert (await topics.describe(KAFKA, wanted)).remedies == []


async def test_growing_takes_every_lane_that_has_topics_the_champions_first(broker: dict[str, int]) -> None:
    broker |= KAFKA.topics.all(request_partitions=4, reply_partitions=1)
    broker |= KAFKA.topics.of_lane("canary", request_partitions=8)
    lines = await topics.grow(KAFKA, 8)
    assert lines[:3] == [f"chat.requests.{bucket}: 4 → 8 partitions" for bucket in BUCKETS]
    assert lines[3:] == [f"chat.requests.canary.{bucket}: 8 → 8 partitions" for bucket in BUCKETS]
    assert {broker[KAFKA.topics.requests(bucket)] for bucket in BUCKETS} == {8}
    assert broker["chat.cancels"] == broker["chat.requests"] == broker["chat.posts"] == 4


@pytest.mark.parametrize(
    ("partitions", "why"),
    [
        (3, r"--partitions 3: chat\.requests\.medium has 8, and Kafka cannot remove partitions; use 8 or more"),
        (10, r"--partitions 10: the 4 of chat\.cancels must divide it, .*; use 12"),
    ],
)
async def test_a_number_that_cannot_be_is_refused_by_name(broker: dict[str, int], partitions: int, why: str) -> None:
    broker |= KAFKA.topics.all(request_partitions=4, reply_partitions=1) | {"chat.requests.medium": 8}
    with pytest.raises(SettingsError, match=f"^{why}$"):
        await topics.grow(KAFKA, partitions)
    broker.clear()
    with pytest.raises(SettingsError, match="is missing; create them: replyline topics create"):
        await topics.grow(KAFKA, partitions)


class _Consumer:
    def __init__(self, partitions: int) -> None:
        self.known = {TopicPartition("t", number) for number in range(partitions)}

    def assignment(self) -> set[TopicPartition]:
        return self.known


@pytest.mark.parametrize(("partitions", "remedy"), [(0, "replyline topics create"), (8, f"{ALTER} t --partitions 13")])
def test_a_reader_of_a_partition_that_is_not_there_names_what_helps(partitions: int, remedy: str) -> None:
    reader = PartitionReader(KAFKA, client_id="c", topic="t", partitions=[12])
    with pytest.raises(UnknownTopicOrPartitionError, match=f"run: {remedy}$"):
        reader._assign(_Consumer(partitions))  # type: ignore[arg-type]
