"""One hand-off per conversation, confirmed only once Kafka has it, and known even while Redis is away."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given

from gateway.access.charges import Caller
from gateway.people.handoffs import Handoffs, Opening
from shared.conversation.handoffs import Handoff, decode_handoff, handoff_headers
from shared.errors import BrokerUnavailable, ProtocolError, StoreUnavailable
from shared.kafka import Outgoing
from shared.wire.codec import msgpack_encode
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateway_services import FakeQuotas
from tests.support.hostile.message_strategies import any_of

SESSION = SessionKey("t", "s")


@dataclass
class Broker:
    """Takes records, or does not."""

    fails: bool = False
    records: list[Outgoing] = field(default_factory=list)

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        await asyncio.sleep(0)
        if self.fails:
            raise BrokerUnavailable("away")
        self.records.append(record)
        return 0, len(self.records)


@dataclass
class Store:
    """Redis, there or not."""

    away: bool = False
    kept: dict[SessionKey, Handoff] = field(default_factory=dict)
    erased: dict[SessionKey, int] = field(default_factory=dict)

    def _there(self) -> None:
        if self.away:
            raise StoreUnavailable("away")

    async def find(self, session: SessionKey) -> Handoff | None:
        self._there()
        return self.kept.get(session)

    async def generation(self, session: SessionKey) -> int:
        self._there()
        return self.erased.get(session, 0)

    async def put(self, handoff: Handoff, *, generation: int, open_s: float) -> bool:
        self._there()
        if self.erased.get(handoff.session, 0) > generation:
            return False
        self.kept[handoff.session] = handoff
        return True


def made(broker: Broker, store: Store, *, open_s: float = 60.0, quotas: FakeQuotas | None = None) -> Handoffs:
    return Handoffs(
        producer=broker,  # type: ignore[arg-type]
        topic="chat.handoffs",
        store=store,  # type: ignore[arg-type]
        open_s=open_s,
        source="replyline-gateway-0",
        quotas=quotas or FakeQuotas(),  # type: ignore[arg-type]
    )


async def opened(handoffs: Handoffs, session_id: str = "s") -> Opening:
    return await handoffs.open(Caller(SessionKey("t", session_id)), "requested", "en", ("r",))


async def test_repeated_and_concurrent_requests_share_one_hand_off() -> None:
    broker = Broker()
    handoffs = made(broker, Store())
    both = await asyncio.gather(opened(handoffs), opened(handoffs))
    again = await opened(handoffs)
    (record,) = broker.records
    assert {each.handoff for each in (*both, again)} == {decode_handoff(record.value)}
    assert [each.was_open for each in (*both, again)] == [False, True, True]
    assert (record.key, record.headers["ce_type"]) == (b"t/s", b"chat.handoff")
    assert (await opened(handoffs, "other")).handoff != again.handoff


async def test_only_created_hand_offs_count_towards_the_tenants_limit() -> None:
    """A repeated request for an open one still gets it."""
    broker, quotas = Broker(), FakeQuotas(handoffs_left=2)
    handoffs = made(broker, Store(), quotas=quotas)
    for name in ("a", "a", "b", "a"):
        assert (await opened(handoffs, name)).handoff is not None
    both = await asyncio.gather(opened(handoffs, "c"), opened(handoffs, "c"), return_exceptions=True)
    assert [getattr(error, "code", None) for error in both] == ["rate_limited"] * 2
    assert (await opened(handoffs, "b")).was_open
    assert quotas.handoffs == [("t", "requested")] * 2
    assert [record.key for record in broker.records] == [b"t/a", b"t/b"]


async def test_a_hand_off_that_kafka_refuses_is_not_open_and_the_next_request_retries() -> None:
    broker = Broker(fails=True)
    handoffs = made(broker, Store())
    assert await asyncio.gather(opened(handoffs), opened(handoffs)) == [Opening(None), Opening(None)]
    assert await handoffs.find(SESSION) is None
    broker.fails = False
    assert not (await opened(handoffs)).was_open
    assert len(broker.records) == 1


@pytest.mark.parametrize("away_then", [True, False])
@pytest.mark.parametrize("away_now", [True, False])
async def test_a_gateway_knows_its_open_hand_offs_with_and_without_redis(*, away_then: bool, away_now: bool) -> None:
    store = Store(away=away_then)
    handoffs = made(Broker(), store)
    first = await opened(handoffs)
    store.away = away_now
    assert await handoffs.find(SESSION) == first.handoff
    handoffs.forget(SESSION)
    store.kept.clear()
    assert await handoffs.find(SESSION) is None
    assert (await opened(handoffs)).handoff != first.handoff, "what Redis had and has no more is resolved"


async def test_a_hand_off_whose_conversation_is_erased_in_transit_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, store = Broker(), Store()
    handoffs = made(broker, store)
    publish = broker.publish

    async def erase_meanwhile(record: Outgoing) -> tuple[int, int]:
        store.erased[SESSION] = 7
        return await publish(record)

    monkeypatch.setattr(broker, "publish", erase_meanwhile)
    await opened(handoffs)
    for store.away in (False, True):
        assert await handoffs.find(SESSION) is None
    store.away = False
    monkeypatch.undo()
    again = await opened(handoffs)
    assert (await handoffs.find(SESSION), again.was_open) == (again.handoff, False)


async def test_a_hand_off_expires_without_redis_too() -> None:
    handoffs = made(Broker(), Store(away=True), open_s=0.0)
    await opened(handoffs)
    assert await handoffs.find(SESSION) is None


@given(any_of(Handoff))
def test_a_record_round_trips(handoff: Handoff) -> None:
    assert decode_handoff(msgpack_encode(handoff)) == handoff
    assert handoff_headers(handoff, source="g")["ce_id"] == handoff.id.encode()


@pytest.mark.parametrize("value", [None, b"", b"\xc1", b"\x80", b"\x91" * 20_000])
def test_an_invalid_hand_off_record_is_reported(value: bytes | None) -> None:
    with pytest.raises(ProtocolError, match=r"not a chat\.handoff"):
        decode_handoff(value)


async def test_a_hand_off_that_kafka_accepts_late_is_one_and_is_found_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released, broker = asyncio.Event(), Broker()

    async def publish(record: Outgoing) -> tuple[int, int]:
        await released.wait()
        broker.records.append(record)
        return 0, 0

    monkeypatch.setattr("shared.kafka.producer.ACKNOWLEDGED_WITHIN_S", 0.0)
    monkeypatch.setattr(broker, "publish", publish)
    handoffs = made(broker, Store())
    for _ in range(2):
        assert await handoffs.open(Caller(SESSION), "requested", "en", ()) == Opening(None)
    released.set()
    while SESSION in handoffs._opening:  # noqa: ASYNC110 - a test
        await asyncio.sleep(0)
    monkeypatch.undo()
    opening = await handoffs.open(Caller(SESSION), "requested", "en", ())
    assert (opening.was_open, len(broker.records)) == (True, 1)
