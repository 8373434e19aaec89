"""A key chooses the partition that every other producer would have it choose."""

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from shared.wire.partitioner import murmur2, partition_of
from shared.wire.session_key import SessionKey

# From Kafka's own UtilsTest.testMurmur2; Java's integers have a sign.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA.items())
def test_it_is_kafkas_own_hash(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32


@given(st.binary(max_size=200), st.integers(1, 1_000))
def test_it_is_the_partition_that_the_producer_would_choose(key: bytes, num: int) -> None:
    numbers = list(range(num))
    assert partition_of(key, num) == DefaultPartitioner()(key, numbers, numbers)


@given(st.text(max_size=40), st.integers(1, 40), st.integers(1, 40))
def test_of_a_topic_with_a_divisor_of_the_partitions_it_is_the_remainder(session: str, few: int, times: int) -> None:
    """What `chat.cancels` rests on."""
    key = SessionKey("demo", session).record_key
    assert partition_of(key, few) == partition_of(key, few * times) % few
