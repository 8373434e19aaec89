"""The partition that a key chooses: pure. Kafka's own producers choose it so, and all that are told `murmur2`."""

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def partition_of(key: bytes, num_partitions: int) -> int:
    """Return a key's partition, as org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey
    does."""
    return (murmur2(key) & _POSITIVE) % num_partitions


def murmur2(data: bytes) -> int:
    """Return the hash of org.apache.kafka.common.utils.Utils.murmur2, of 32 bits without a sign (A. Appleby's
    MurmurHash2)."""
    words, rest = divmod(len(data), 4)
    hash_ = _SEED ^ len(data)
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = (word * _M) & _MASK
        hash_ = ((hash_ * _M) ^ ((mixed ^ (mixed >> 24)) * _M)) & _MASK
    if rest:
        hash_ = ((hash_ ^ int.from_bytes(data[4 * words :], "little")) * _M) & _MASK
    hash_ = ((hash_ ^ (hash_ >> 13)) * _M) & _MASK
    return hash_ ^ (hash_ >> 15)
