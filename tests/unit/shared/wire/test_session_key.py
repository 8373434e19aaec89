"""A session's keys are together at one node of a Redis Cluster; redis-py's own table is the authority for slots."""

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from shared.wire.session_key import SessionKey


@given(st.text(alphabet="ab.", min_size=1), st.text(alphabet="ab{}"))
def test_all_keys_of_a_session_have_one_slot(tenant: str, session_id: str) -> None:
    session = SessionKey(tenant, session_id)
    assert len({key_slot(session.of(what).encode()) for what in ("turns", "erased", "kv", "handoff")}) == 1
