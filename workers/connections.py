"""The Kafka clients of a worker's process."""

from contextlib import AsyncExitStack
from functools import partial

from shared.kafka import Copies, GroupReader, KafkaWatch, PartitionReader, Producer
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
from shared.versions.log import VersionsLog
from shared.wire.lanes import CHAMPION
from shared.wire.topics import BROADCAST_PARTITION, in_lane
from workers.intake.passing_on import PassingOn
from workers.request.open_answers import OpenAnswers


class KafkaConnections:
    """The worker's Kafka clients. `close` closes all of them, even if closing one fails."""

    def __init__(self, settings: Settings, client_id: str) -> None:
        kafka, topics, lane = settings.kafka, settings.kafka.topics, settings.worker.lane
        self._settings, self._lane = kafka, lane
        reader = partial(PartitionReader, kafka, client_id=client_id, unhurried=True)
        self.producer = Producer(kafka, client_id=client_id)
        self.requests = GroupReader(
            kafka,
            client_id=client_id,
            topics=[topics.requests(bucket, lane) for bucket in settings.worker.buckets],
            group=in_lane(kafka.workers_group, lane),
            instance_id=settings.worker.instance_id,
        )
        self.offsets = OffsetTracker()
        self.commits = Commits(self.requests, self.offsets)
        self.cancels = reader(topic=topics.cancels, partitions=())
        self.erasures = reader(topic=topics.erasures, partitions=[BROADCAST_PARTITION])
        self.versions = VersionsLog.of(kafka, client_id=client_id)
        self.letters = DeadLetters(self.producer, topics, client_id)
        self.copies = Copies(self.producer, kafka, lane)
        self.watch = KafkaWatch(kafka, lambda: self.erasures.connected)

    def passing_on(self, answers: OpenAnswers) -> PassingOn | None:
        """Return the part that forwards a lane's requests; None for the champion's lane."""
        if self._lane == CHAMPION:
            return None
        topics = self._settings.topics
        return PassingOn(producer=self.producer, topics=topics, lane=self._lane, offsets=self.offsets, answers=answers)

    def missing(self) -> str | None:
        """Return why Kafka cannot be used, for `/ready`."""
        connected = self.producer.connected and self.requests.connected and self.erasures.connected
        return None if connected else self.watch.why

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (self.producer, self.erasures, self.cancels, self.requests, self.versions):
                closing.push_async_callback(part.stop)
