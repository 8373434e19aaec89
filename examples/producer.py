"""Ask one question through Kafka and print the answer as it comes: python producer.py HOST:PORT"""

import asyncio
import sys
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from msgspec import msgpack


async def main(kafka: str, topic: str = "chat.replies.mailer") -> None:
    ask = {
        "type": "chat.request",
        "id": uuid.uuid4().hex,
        "session_id": "mailer-7",
        "input": "How long do refunds take?",
        "reply_topic": topic,
    }
    replies = AIOKafkaConsumer(topic, bootstrap_servers=kafka, auto_offset_reset="earliest")
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    try:
        await replies.start()
        await producer.start()
        await producer.send_and_wait("chat.requests", msgpack.encode(ask), key=b"mailer-7")
        async for reply in (msgpack.decode(record.value) async for record in replies):
            print(reply.get("delta") or reply, flush=True)
            if reply["type"] == "chat.done" and reply["request_id"] == ask["id"]:
                break
    finally:
        await producer.stop()
        await replies.stop()


if not sys.argv[1:]:
    sys.exit("usage: python producer.py HOST:PORT, of a Kafka broker")
try:
    asyncio.run(main(sys.argv[1]))
except (KafkaError, ValueError, OverflowError) as error:
    sys.exit(f"no answer by Kafka at '{sys.argv[1]}': {error}; write the HOST:PORT of a broker that runs")
