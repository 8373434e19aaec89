"""In each version of a fetch that may wait at the relay, an answer with records or an error is passed on."""

import struct

import pytest
from aiokafka.protocol import fetch

from ops.stack.fetch_relay import has_records

VERSIONS = range(4, 12)


def answer(version: int, *, error: int = 0, records: bytes = b"", aborted: int = 0) -> bytes:
    """Return an answer about two partitions, as aiokafka writes it; the second one has the news."""

    def partition(number: int, error: int, records: bytes) -> tuple[object, ...]:
        start = (0,) if version >= 5 else ()
        replica = (-1,) if version >= 11 else ()
        return (number, error, 9, 9, *start, [(1, 2)] * aborted, *replica, records)

    session = (0, 7) if version >= 7 else ()
    topics = [("chat.requests", [partition(0, 0, b""), partition(1, error, records)])]
    written = getattr(fetch, f"FetchResponse_v{version}")(0, *session, topics).encode()
    return struct.pack(">i", 1) + bytes(written)


@pytest.mark.parametrize("aborted", [0, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_has_news_if_a_partition_has_records_or_an_error(version: int, aborted: int) -> None:
    assert not has_records(version, answer(version, aborted=aborted))
    assert has_records(version, answer(version, records=b"x", aborted=aborted))
    assert has_records(version, answer(version, error=1, aborted=aborted))


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 7])
def test_an_error_of_the_whole_fetch_is_news(version: int) -> None:
    written = getattr(fetch, f"FetchResponse_v{version}")(0, 71, 0, []).encode()
    assert has_records(version, struct.pack(">i", 1) + bytes(written))
