"""Kafka's clients of a gateway."""

from contextlib import AsyncExitStack
from functools import partial

from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from shared.kafka import Copies, KafkaWatch, LogReader, PartitionReader, Producer
from shared.settings import Settings
from shared.versions.log import VersionsLog
from shared.wire.topics import BROADCAST_PARTITION


class KafkaWing:
    """Kafka's clients, but for the inbox's."""

    def __init__(self, settings: Settings, source: str) -> None:
        kafka, topics, partition = settings.kafka, settings.kafka.topics, settings.gateway.reply_partition
        reader = partial(PartitionReader, kafka, client_id=source)
        log = partial(LogReader, kafka, client_id=source)
        self.producer = Producer(kafka, client_id=source)
        # One of their own: a producer that fails to deliver is replaced, and questions would wait for that.
        self.handoff_producer = Producer(kafka, client_id=f"{source}-handoffs")
        self.side_producer = Producer(kafka, client_id=f"{source}-side")  # of shadows and observations
        self.replies = reader(topic=topics.replies, partitions=[partition])
        self.reports = reader(topic=topics.workers, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.erasures = reader(topic=topics.erasures, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.versions = VersionsLog.of(kafka, client_id=source)
        self.follower = LogFollower(lambda number: log(topic=topics.replies, partition=number))
        self.question_reader = QuestionReader(lambda topic, number: log(topic=topic, partition=number))
        self.copies = Copies(self.producer, kafka)
        self.watch = KafkaWatch(kafka, lambda: self.replies.connected)

    def missing(self) -> str | None:
        """Return why Kafka cannot be used, for `/ready`: a client may ask for a person as soon as that says so."""
        clients = (self.producer, self.handoff_producer, self.replies)
        return None if all(client.connected for client in clients) else self.watch.why

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (
                self.side_producer,
                self.handoff_producer,
                self.producer,
                self.erasures,
                self.reports,
                self.replies,
            ):
                closing.push_async_callback(part.stop)
            closing.push_async_callback(self.question_reader.stop)
            closing.push_async_callback(self.follower.stop)
            closing.push_async_callback(self.versions.stop)
