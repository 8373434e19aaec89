"""A cancel stands where the worker reads that has its request, or nobody starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.partitioner import partition_of
from shared.wire.topic_layout import cancel_partitions, misfit
from shared.wire.topics import TopicNames, session_key

TOPICS = TopicNames()


def layout(short: int, medium: int, long: int, cancels: int) -> dict[str, int]:
    return {
        "chat.requests.short": short,
        "chat.requests.medium": medium,
        "chat.requests.long": long,
        "chat.cancels": cancels,
    }


@pytest.mark.parametrize("fits", [(4, 4, 4, 4), (4, 4, 4, 1), (12, 4, 8, 4), (4, 4, 4, 0), (0, 0, 0, 3), (6, 0, 0, 3)])
def test_where_they_divide_nothing_is_said(fits: tuple[int, int, int, int]) -> None:
    """0: the topic is not there, which others say."""
    assert misfit(TOPICS, layout(*fits)) is None


@pytest.mark.parametrize(
    "known", [("chat.requests.long", "chat.cancels"), ("chat.requests.long",), ("chat.cancels",), ()]
)
def test_a_topic_that_is_not_known_counts_for_nothing(known: tuple[str, ...]) -> None:
    seen = {"chat.requests.long": 12, "chat.cancels": 3}
    assert misfit(TOPICS, {topic: seen[topic] for topic in known}) is None


def test_where_they_do_not_it_is_said_which_and_what_to_type() -> None:
    why = misfit(TOPICS, layout(12, 8, 4, 3))
    assert why is not None
    assert "chat.cancels has 3 partitions, and chat.requests.medium has 8" in why
    assert why.endswith("REPLYLINE_KAFKA__REQUEST_PARTITIONS=4 replyline topics create")
    assert "\n" not in why


@given(st.text(max_size=40), st.sampled_from([(4, 4), (4, 2), (12, 4), (1_000, 100), (7, 1)]), st.data())
def test_whoever_reads_a_request_reads_its_cancel(session: str, nums: tuple[int, int], data: st.DataObject) -> None:
    requests, cancels = nums
    key = session_key("demo", session)
    held = {partition_of(key, requests), *data.draw(st.sets(st.integers(0, requests - 1)))}
    assert partition_of(key, cancels) in cancel_partitions(held, cancels)


def test_with_as_many_partitions_it_reads_no_others() -> None:
    assert cancel_partitions({3, 17}, 1_000) == {3, 17}
