"""An edge's erasure reaches its gateways and workers, even if single steps on the way fail."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from shared.errors import BrokerUnavailable, StoreUnavailable
from shared.kafka import Outgoing
from shared.settings import Settings
from shared.wire.codec import decode_erase, decode_forgotten, decode_people
from shared.wire.messages import Erase, Forgotten
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateway_services import FakeProducer
from workers.serving.edge_connections import EdgeConnections


class FailingProducer(FakeProducer):
    """Kafka is away for the first record."""

    async def publish(self, record: Outgoing) -> tuple[int, int]:
        if not self.partitions:
            self.partitions = 1
            raise BrokerUnavailable("away")
        return await super().publish(record)


class Kept:
    """The generations that Redis has."""

    def __init__(self) -> None:
        self.generations: dict[SessionKey, int] = {}
        self.slow = False
        self.deleted: list[int] = []

    async def generation(self, session: SessionKey) -> int:
        if self.slow:
            raise StoreUnavailable("slow")
        return self.generations.get(session, 0)

    async def delete(self, session: SessionKey, *, generation: int, journal: bool) -> int:
        assert not journal, "the centre knows of it"
        self.deleted.append(generation)
        self.generations[session] = generation
        return generation

    async def forget_all(self, _tenant: str) -> None:
        self.generations.clear()


async def test_an_erasure_that_kafka_refused_is_sent_with_the_next_synchronisation(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    key = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "key.pem").write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    link = {"centre": "wss://centre/ws", "token_file": tmp_path / "token", "trusted_keys": tmp_path}
    settings = Settings(tenant="shop", edge=link, faq={"path": tmp_path / "faq.json", "stale_s": 9})  # type: ignore[arg-type]
    producer, history = FailingProducer(), Kept()
    parts: tuple[Any, Any] = producer, history
    wing = EdgeConnections(settings, *parts)
    try:
        with pytest.raises(BrokerUnavailable):
            await wing.sync.erase("s", 3)
        await wing.sync.erase("s", 3)
        history.slow = True
        with pytest.raises(StoreUnavailable):
            await wing.sync.erase("s", 3)
        assert history.deleted == [3], "a Redis that does not say so may have the erasure"
    finally:
        await wing.close()
    told, people, forgotten = producer.published
    assert decode_erase(told.value) == decode_people(people.value) == Erase(tenant="shop", session_id="s", generation=3)
    assert decode_forgotten(forgotten.value) == Forgotten(person=SessionKey("shop", "s").digest, unix_ms=3)
