"""Use Redis like a gateway and a worker: every command that either needs."""

import pytest

from gateway.access.charges import Caller, Tariff
from gateway.access.quotas import Quotas
from shared.conversation.history import History
from shared.conversation.places import Places
from shared.conversation.turn import Turn
from shared.errors import ProtocolError
from shared.settings import KvSettings
from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.wire.session_key import SessionKey
from tests.integration.support.kv_stores import A, B, load
from tests.support.secured import Secured
from workers.kv.store import KvStore

ERASED = 7  # the generation that the gateway's erasure begins


async def use_as_gateway(secured: Secured, session: SessionKey) -> None:
    settings = secured.redis_settings("gateway")
    history, quotas = (
        History(settings),
        Quotas(Tariff(QuotaSettings(subject_per_minute=1), HandoffSettings()), settings),
    )
    await history.ping()
    assert await history.append(
        session, Turn(request_id="r1", user="q", output_text="a", source="model", asked_unix_ms=1)
    )
    assert await history.turns(session, limit=5, before_unix_ms=2)  # an answer is fetched or resumed
    assert await history.delete(session, generation=ERASED) == ERASED
    assert await history.generation(session) == ERASED
    alice = Caller(session, "alice")
    await quotas.charge_shared("ask", alice)
    with pytest.raises(ProtocolError, match="over the limit of this subject"):
        await quotas.charge_shared("ask", alice)
    await quotas.close()
    places = Places(settings)
    for number, request_id in enumerate(("r3", "r4")):  # the first one has expired when the second comes
        now = {"now_unix_ms": number * 10, "until_unix_ms": number * 10 + 10}
        claimed = await places.claim(session, request_id, number, staying=(), **now)
        assert claimed[:2] == (number, "moved" if number else "new")
    await places.release(session, "r4", 15)
    assert await places.claim(session, "r5", 0, staying=(), now_unix_ms=14, until_unix_ms=24) == (1, "pinned", ())
    await places.close()
    history.remember(session, Turn(request_id="r2", user="q", output_text="a", source="model", asked_unix_ms=2))
    await history.close()


async def use_as_worker(secured: Secured, session: SessionKey) -> None:
    settings = secured.redis_settings("worker")
    history = History(settings)
    await history.ping()
    turn = Turn(request_id="r2", user="q", output_text="a", source="model", asked_unix_ms=1, generation=ERASED)
    assert await history.append(session, turn)
    assert await history.turns(session, limit=5, before_unix_ms=2)
    history.remember(session, Turn(request_id="r2", user="q", output_text="a", source="model", asked_unix_ms=2))
    await history.close()
    store = KvStore(settings, KvSettings(timeout_ms=2_000), marks=settings, max_value_bytes=10, count_dropped=print)
    assert store.probe()
    for _ in range(2):
        assert store.save(session, {A: b"a"}, drop=[B], shared={B: b"b"}, generation=ERASED) >= 1
        assert store.ask(session, [B]).shared_names == {B}
        assert load(store, session, [A], [B]) == {A: b"a", B: b"b"}
        store.drop(session, [A])
    store.drop(session, (), [B])
    store.close()
