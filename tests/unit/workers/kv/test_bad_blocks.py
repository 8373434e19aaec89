"""What is not what its name says is dropped and counted, and its tokens are computed."""

from typing import Any

import numpy as np
import pytest

from tests.support.fakes.kv_workers import TALK, Workers, dropped, truth


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda value: value[:-1], "truncated"),
        (lambda value: value[:10], "truncated"),
        (lambda value: b"", "truncated"),
        (lambda value: value + b"x", "oversized"),
        (lambda value: value[:-1] + bytes([value[-1] ^ 1]), "checksum"),
        (lambda value: b"PNG\x0d" + value[4:], "foreign"),
    ],
)
async def test_a_harmed_value_is_dropped_and_what_stands_before_it_used(
    workers: Workers, harm: Any, reason: str
) -> None:
    await workers.start().turn(TALK)
    third = next(iter(workers.redis.of()))  # tokens 8 to 11
    workers.redis.of()[third] = harm(workers.redis.of()[third])
    worker, before = workers.start(), dropped(reason)
    row = await worker.restored([*TALK, 30])
    assert (row.computed, row.kept, row.loaded) == (8, 8, 8)
    assert dropped(reason) == before + 1
    assert third not in workers.redis.of()
    worker.keep(row)
    assert (await workers.start().restored([*TALK, 30, 31])).computed == 19, "it is written anew"


async def test_a_harmed_shared_value_is_dropped_for_all(workers: Workers) -> None:
    await workers.start().turn(TALK)
    first = next(iter(workers.redis.shared))
    workers.redis.shared[first] = workers.redis.shared[first][:-4] + b"\xff\xff\xff\xff"
    worker, before = workers.start(), dropped("checksum")
    assert (await worker.turn([*TALK, 30], session="b")).computed == 0
    assert dropped("checksum") == before + 1
    assert (await workers.start().restored([*TALK, 30], session="c")).computed == 8


async def test_a_value_under_anothers_name_is_not_used(workers: Workers) -> None:
    """As long and as well formed as the right one."""
    await workers.start().turn(TALK)
    one, other, *_ = workers.redis.of()
    workers.redis.of()[one] = workers.redis.of()[other]
    assert (await workers.start().restored([*TALK, 30])).computed == 8


async def test_kv_that_is_no_number_is_not_kept_and_nothing_behind_it(workers: Workers) -> None:
    worker, before = workers.start(), dropped("not_finite")
    values = truth(TALK)
    values[1, 0, 0, 13, 2] = np.nan
    worker.keep(await worker.restored(TALK), values)
    assert dropped("not_finite") == before + 1
    assert (await worker.restored([*TALK, 30])).computed == 12
