"""A session's keys are in one slot of a Redis Cluster, according to redis-py's own slot table."""

from pathlib import Path
from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from shared.wire.session_key import SessionKey, SessionPart

SECURITY: Final = (Path(__file__).parents[4] / "docs" / "security.md").read_text()


@given(st.text(alphabet="ab.", min_size=1), st.text(alphabet="ab{}"))
def test_all_keys_of_a_session_have_one_slot(tenant: str, session_id: str) -> None:
    session = SessionKey(tenant, session_id)
    assert len({key_slot(session.redis_key(part).encode()) for part in get_args(SessionPart)}) == 1


@pytest.mark.parametrize("part", get_args(SessionPart))
def test_each_session_key_pattern_is_on_the_security_page(part: SessionPart) -> None:
    """A process whose Redis user may not write a key loses the data in it."""
    rows = [line for line in SECURITY.splitlines() if line.startswith("| Redis: ")]
    gateway = next(line for line in SECURITY.splitlines() if line.startswith("ACL SETUSER gateway "))
    assert any(f"`{part}`" in row for row in rows)
    assert f"~replyline:{{*}}:{part} " in gateway
