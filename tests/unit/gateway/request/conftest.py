"""The requests of one gateway."""

import pytest

from tests.support.builders.gateway import Requests


@pytest.fixture
def table() -> Requests:
    return Requests()
