"""Another service asks and reads answers as CloudEvents in Kafka's binary mode, in the form of the `cloudevents`
package; docs/asyncapi.json describes the same headers.
"""

from collections.abc import Iterable
from typing import Any

import msgpack
import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, to_binary_event
from cloudevents.core.v1.event import CloudEvent
from jsonschema_rs import validator_for

from ops.operate.asyncapi import asyncapi
from shared.kafka import create_topics
from tests.support.shared_system import STANDARD
from tests.support.system import Service, System
from tests.support.wire import Client

pytestmark = [STANDARD, pytest.mark.usefixtures("running")]
REPLIES = "chat.replies.shop"


def event_of(record: Any, message: str) -> BaseCloudEvent:
    """Return the record as the package reads it, after checking its headers against the document."""
    headers = dict(record.headers)
    schema = asyncapi()["components"]["messages"][message]["headers"]
    validator_for(schema).validate({name: value.decode() for name, value in headers.items()})
    return from_binary_event(KafkaMessage(headers=headers, key=record.key, value=record.value))


def asked(name: str, **fields: Any) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return value and headers of a question as a CloudEvent."""
    data = {"id": name, "session_id": f"of-{name}", "input": "How do I return an item?", "max_output_tokens": 8}
    about = {"id": name, "source": "/shop/mailer", "type": "chat.request", "datacontenttype": "application/json"}
    message = to_binary_event(CloudEvent(about, data | fields))
    return message.value, list(message.headers.items())


def named(records: Iterable[Any], name: str) -> list[Any]:
    return [record for record in records if dict(record.headers).get("ce_id", b"").decode().split("/")[0] == name]


@pytest.mark.parametrize("topic", ["chat.requests", "chat.requests.short"])
async def test_a_question_and_its_answer_are_cloud_events(system: System, topic: str) -> None:
    await create_topics(system.kafka_settings, {system.topic(REPLIES): 1})
    name = f"by-{topic.count('.')}"
    value, headers = asked(name, reply_topic=system.topic(REPLIES))
    await system.produce(topic, value, headers=headers)
    async with system.reading(REPLIES) as tap:
        last = await tap.until(lambda record: msgpack.unpackb(record.value)["request_id"] == name and done(record))
        *deltas, end = named(tap.records, name)
    assert end == last
    assert event_of(end, "ReplyDone").get_type() == "chat.done"
    assert msgpack.unpackb(event_of(end, "ReplyDone").get_data())["output_text"]
    ids = [event_of(delta, "ReplyDelta").get_id() for delta in deltas]
    assert len(ids) > 0
    assert len({*ids, event_of(end, "ReplyDone").get_id()}) == len(deltas) + 1
    async with system.reading("chat.requests.short") as tap:
        event = event_of(await tap.until(lambda record: bool(named([record], name))), "ChatRequest")
    assert (event.get_id(), event.get_type(), event.get_specversion()) == (name, "chat.request", "1.0")


def done(record: Any) -> bool:
    return bool(msgpack.unpackb(record.value)["type"] == "chat.done")


async def test_a_refusal_is_a_cloud_event(system: System) -> None:
    """A gateway refuses it at the inbox."""
    await create_topics(system.kafka_settings, {system.topic(REPLIES): 1})
    value, headers = asked("refused", reply_topic=system.topic(REPLIES), tenant="elsewhere")
    await system.produce("chat.requests", value, headers=headers)
    async with system.reading(REPLIES) as tap:
        end = event_of(await tap.until(lambda record: bool(named([record], "refused"))), "ReplyDone")
    assert msgpack.unpackb(end.get_data())["error"]["code"] == "tenant_not_allowed"
    async with system.reading("chat.dead-letters") as tap:
        letter = event_of(await tap.until(lambda record: bool(named([record], "refused"))), "DeadLetter")
    assert (letter.get_type(), letter.get_source()) == ("chat.request", "/shop/mailer")  # unchanged
    assert letter.get_data()["session_id"] == "of-refused"


async def test_a_dead_letter_of_an_invalid_event_is_a_cloud_event(system: System) -> None:
    written = await system.produce("chat.requests.short", b"{", headers=[("content-type", b"application/json")])
    origin = f"{system.topic('chat.requests.short')}/{written.partition}/{written.offset}"
    async with system.reading("chat.dead-letters") as tap:
        letter = await tap.until(lambda record: dict(record.headers).get("ce_id") == origin.encode())
    event = event_of(letter, "DeadLetter")
    assert (event.get_type(), event.get_data()) == ("chat.dead-letter", "{")
    assert dict(letter.headers)["dead-letter-reason"] == b"invalid_record"


async def test_a_hand_off_is_a_cloud_event(system: System, gateway: Service) -> None:
    async with Client.connect(gateway.ws) as client:
        await client.send({"type": "handoff.request"})
        created = await client.of_type("handoff.created")
    async with system.reading("chat.handoffs") as tap:
        event = event_of(await tap.until(lambda record: bool(named([record], created["handoff_id"]))), "Handoff")
    assert event.get_type() == "chat.handoff"
    assert event.get_source().startswith("replyline-gateway-")
    assert msgpack.unpackb(event.get_data())["session_id"] == client.session_id
