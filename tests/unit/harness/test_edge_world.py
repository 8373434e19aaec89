"""Edges whose link is cut at any moment, by seeds."""

import pytest

from tests.world.edges import EdgeWorld


@pytest.mark.parametrize("seed", range(30))
async def test_each_turn_is_stored_once_and_none_that_was_erased(seed: int) -> None:
    assert await EdgeWorld(seed).run() == []
