"""A key maps to the same partition as in every other producer."""

from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.producer import partition_of
from shared.wire.session_key import SessionKey


@given(st.binary(max_size=200), st.integers(1, 1_000))
def test_the_partition_equals_the_one_kafkas_producer_chooses(key: bytes, num: int) -> None:
    numbers = list(range(num))
    assert partition_of(key, num) == DefaultPartitioner()(key, numbers, numbers)


@given(st.text(max_size=40), st.integers(1, 40), st.integers(1, 40))
def test_a_topic_whose_partitions_divide_the_count_gets_the_remainder(session: str, few: int, times: int) -> None:
    """`chat.cancels` relies on this."""
    key = SessionKey("demo", session).record_key
    assert partition_of(key, few) == partition_of(key, few * times) % few
