"""Fixtures of the tests of the world and of the proofs."""

import pytest


@pytest.fixture(autouse=True)
def _clock_stands() -> None:
    """Each process of a world has its own clock."""
