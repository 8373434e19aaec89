"""After a failed delivery another producer takes over, and no send is refused while it connects. A refused record is
not a failure.
"""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.kafka import producer as module
from shared.settings.kafka import KafkaSettings


@dataclass(eq=False)
class FakeClient:
    """Behaves like aiokafka's producer."""

    open: list["asyncio.Future[object]"] = field(default_factory=list)
    stopped: bool = False
    has_connection: bool = True
    knows_topics: asyncio.Event = field(default_factory=asyncio.Event)
    _message_accumulator: Any = field(default_factory=lambda: SimpleNamespace(_batches={}))

    def __post_init__(self) -> None:
        self.knows_topics.set()

    async def send(self, *_: object, **__: object) -> "asyncio.Future[object]":
        await self.knows_topics.wait()
        self.open.append(asyncio.get_running_loop().create_future())
        return self.open[-1]

    async def stop(self) -> None:
        self.stopped = True


@dataclass
class Broker:
    """Accepts clients while `open` is set."""

    clients: list[FakeClient] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self) -> FakeClient:
        await self.open.wait()
        self.clients.append(FakeClient())
        return self.clients[-1]


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.open.set()
    return broker


@pytest.fixture
async def producer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Producer:
    producer = Producer(KafkaSettings(), client_id="test")
    monkeypatch.setattr(module, "_connect", lambda *_: broker.connect())
    monkeypatch.setattr(module, "has_connection", lambda client: client.has_connection)
    await producer.start()
    return producer


async def quiet() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def deliver(producer: Producer, error: KafkaError | None, topic: str = "chat.replies") -> None:
    """Send a record whose delivery ends with this outcome."""
    delivery = await producer.enqueue(Outgoing(topic, b"x"))
    if error is None:
        delivery.set_result(None)
    else:
        delivery.set_exception(error)
        assert delivery.exception() is error
    await quiet()


async def test_a_failed_delivery_starts_another_producer(producer: Producer, broker: Broker) -> None:
    await deliver(producer, OutOfOrderSequenceNumber())
    assert [client.stopped for client in broker.clients] == [True, False]
    await deliver(producer, None)
    assert len(broker.clients[1].open) == 1


async def test_sends_succeed_while_the_new_producer_connects(producer: Producer, broker: Broker) -> None:
    broker.open.clear()
    await deliver(producer, OutOfOrderSequenceNumber())
    await deliver(producer, None)
    assert len(broker.clients[0].open) == 2
    assert not broker.clients[0].stopped
    broker.open.set()
    await quiet()
    assert [client.stopped for client in broker.clients] == [True, False]


async def test_a_send_fails_immediately_when_no_broker_is_left(producer: Producer, broker: Broker) -> None:
    broker.open.clear()
    broker.clients[0].has_connection = False
    await deliver(producer, RequestTimedOutError())
    with pytest.raises(BrokerUnavailable):
        await producer.enqueue(Outgoing("chat.replies", b"x"))
    broker.open.set()
    await quiet()
    await deliver(producer, None)
    assert [client.stopped for client in broker.clients] == [True, False]


async def test_many_failures_start_at_most_one_producer_a_second(producer: Producer, broker: Broker) -> None:
    for _ in range(5):
        await deliver(producer, OutOfOrderSequenceNumber())
    assert len(broker.clients) == 2
    await producer.stop()
    assert all(client.stopped for client in broker.clients)


async def test_another_producer_may_start_after_a_second(
    producer: Producer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RENEWED_AFTER_S", 0.0)
    for _ in range(5):
        await deliver(producer, OutOfOrderSequenceNumber())
    assert [client.stopped for client in broker.clients] == [True] * 5 + [False]


async def test_a_send_waiting_for_topic_metadata_survives_a_renewal(
    producer: Producer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.0)
    delivery = await producer.enqueue(Outgoing("chat.replies", b"x"))
    [first] = broker.clients
    first.knows_topics.clear()
    looking = asyncio.create_task(producer.enqueue(Outgoing("chat.unheard-of", b"x")))
    await quiet()
    delivery.set_exception(OutOfOrderSequenceNumber())
    await quiet()
    assert [client.stopped for client in broker.clients] == [False, False]
    await deliver(producer, None)
    first.knows_topics.set()
    (await looking).set_result(None)
    await quiet()
    assert [client.stopped for client in broker.clients] == [True, False]


async def test_a_send_whose_topic_metadata_never_arrives_fails_and_blocks_no_other(
    producer: Producer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka never completes its future after the producer is stopped."""
    monkeypatch.setattr(producer, "_settings", KafkaSettings(request_timeout_ms=100))
    monkeypatch.setattr(producer, "_queued_within_s", 0.2)
    [first] = broker.clients
    first.knows_topics.clear()
    looking = asyncio.create_task(producer.enqueue(Outgoing("chat.unheard-of", b"x")))
    await quiet()
    async with asyncio.timeout(5):
        await producer.stop()
        with pytest.raises(BrokerUnavailable):
            await looking
    assert first.stopped
    assert producer._sending == {}


@pytest.mark.parametrize(
    "refusal", [TopicAuthorizationFailedError("crm"), MessageSizeTooLargeError(), RecordListTooLargeError()]
)
async def test_a_refusal_starts_no_other_producer(producer: Producer, broker: Broker, refusal: KafkaError) -> None:
    await deliver(producer, refusal)
    assert [client.stopped for client in broker.clients] == [False]


def test_a_permanent_refusal_is_distinguished_from_a_temporary_one() -> None:
    producer = Producer(KafkaSettings(), client_id="test")
    verdicts = {
        (topic, type(error)): producer.verdict(topic, error)
        for topic in ("chat.replies", "crm")
        for error in (MessageSizeTooLargeError(), TopicAuthorizationFailedError(topic), OutOfOrderSequenceNumber())
    }
    refused = {place: verdict.code for place, verdict in verdicts.items() if isinstance(verdict, ProtocolError)}
    assert refused == {
        ("chat.replies", MessageSizeTooLargeError): "record_too_large",
        ("crm", MessageSizeTooLargeError): "record_too_large",
        ("crm", TopicAuthorizationFailedError): "topic_not_authorized",
    }
    assert all(isinstance(verdict, BrokerUnavailable) for place, verdict in verdicts.items() if place not in refused)
