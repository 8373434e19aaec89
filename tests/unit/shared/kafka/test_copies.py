"""A process is not ready if the loss of one broker would lose acknowledged records."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable
from shared.kafka import Copies
from shared.settings.kafka import KafkaSettings
from shared.wire.topic_layout import TopicCopies


class Broker:
    """If `replicas` is None, the broker is away."""

    replicas: int | None = 1
    broken = ""

    async def copies(self, topic: str) -> TopicCopies:
        await asyncio.sleep(0)
        if self.replicas is None:
            raise BrokerUnavailable("away")
        return TopicCopies(topic, 3, self.replicas, self.replicas, 2)

    async def broken_promises(self, topics: Collection[str]) -> list[str]:
        assert {"chat.requests.short", "chat.replies", "chat.versions", "chat.erasures", "chat.forgotten"} <= {*topics}
        return [self.broken] if self.broken else []


async def test_a_weak_topic_is_logged_once_and_reported_until_it_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.kafka.layout._LOOK_S", 0.0)
    broker: Any = Broker()
    copies = Copies(broker, KafkaSettings())
    with capture_logs() as lines:
        watching = asyncio.create_task(copies.watch())
        told = []
        for replicas, broken in ((1, ""), (None, ""), (3, ""), (3, "chat.forgotten has cleanup.policy=delete")):
            broker.replicas, broker.broken = replicas, broken
            for _ in range(50):
                await asyncio.sleep(0)
            told.append(copies.weak)
        watching.cancel()
    assert "chat.requests.short keeps 1 of 3 copies" in str(told[0])
    assert told[1:] == [told[0], None, None]
    assert [line["event"] for line in lines] == ["kafka_too_weak", "kafka_topic_settings"]
    assert lines[1]["cause"] == "chat.forgotten has cleanup.policy=delete"
