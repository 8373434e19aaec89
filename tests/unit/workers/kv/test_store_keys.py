"""Where a session's KV lies in Redis."""

import re

from hypothesis import given
from hypothesis import strategies as st

from shared.wire.session_key import SessionKey, shared_key
from workers.kv.store import _TRANSACTION_BYTES, _parts

tenants = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}", fullmatch=True)
session_ids = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64)
names = st.binary(min_size=1, max_size=32)


def tag(key: str) -> str:
    """Return the part that Redis Cluster hashes: between the first brace and the next closing one, unless it is
    empty."""
    found = re.search(r"\{([^}]+)\}", key)
    return found.group(1) if found else key


@given(tenants, session_ids)
def test_all_keys_of_a_session_are_on_one_node(tenant: str, session_id: str) -> None:
    session = SessionKey(tenant, session_id)
    assert len({tag(session.redis_key(what)) for what in ("turns", "erased", "kv")}) == 1
    assert len({session.redis_key(what) for what in ("turns", "erased", "kv")}) == 3


@given(tenants, session_ids, tenants, session_ids, names)
def test_no_two_sessions_and_no_session_and_shared_block_have_the_same_key(
    tenant: str, session_id: str, other_tenant: str, other_id: str, name: bytes
) -> None:
    here, there = SessionKey(tenant, session_id), SessionKey(other_tenant, other_id)
    assert (here.redis_key("kv") == there.redis_key("kv")) == (here == there)
    assert shared_key(other_tenant, name) not in {
        here.redis_key("kv"),
        here.redis_key("turns"),
        here.redis_key("erased"),
    }
    assert (shared_key(tenant, name) == shared_key(other_tenant, name)) == (tenant == other_tenant)
    assert tag(shared_key(tenant, name)) == tenant, "a tenant's are on one node"


@given(st.dictionaries(names, st.integers(0, 2 * _TRANSACTION_BYTES), max_size=12))
def test_a_transaction_holds_so_many_bytes_or_one_value(sizes: dict[bytes, int]) -> None:
    """Nothing is left out, nothing written twice, the order kept."""
    blocks = {name: _Sized(size) for name, size in sizes.items()}
    batches = list(_parts(blocks))  # type: ignore[arg-type]
    assert [item for batch in batches for item in batch.items()] == list(blocks.items())
    assert all(len(batch) == 1 or sum(map(len, batch.values())) <= _TRANSACTION_BYTES for batch in batches)
    assert all(batches)


class _Sized:
    """As long as it says, and no larger in memory."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size
