"""A key chooses the partition that every other producer would have it choose."""

from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.producer import partition_of
from shared.wire.session_key import SessionKey


@given(st.binary(max_size=200), st.integers(1, 1_000))
def test_it_is_the_partition_that_the_producer_would_choose(key: bytes, num: int) -> None:
    numbers = list(range(num))
    assert partition_of(key, num) == DefaultPartitioner()(key, numbers, numbers)


@given(st.text(max_size=40), st.integers(1, 40), st.integers(1, 40))
def test_of_a_topic_with_a_divisor_of_the_partitions_it_is_the_remainder(session: str, few: int, times: int) -> None:
    """What `chat.cancels` rests on."""
    key = SessionKey("demo", session).record_key
    assert partition_of(key, few) == partition_of(key, few * times) % few
