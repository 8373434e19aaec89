"""The wings of a gateway's process: what it holds of Kafka and of Redis. Each closes all of its own, whatever fails."""

from contextlib import AsyncExitStack
from functools import partial

from gateway.access.charges import Tariff
from gateway.access.quotas import Quotas
from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.router import Router
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.history import History
from shared.kafka import Copies, GroupReader, KafkaWatch, LogReader, PartitionReader, Producer
from shared.model.tokenizer import Tokenizer
from shared.process.tasks import Tasks
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.settings import Settings
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
        self.replies = reader(topic=topics.replies, partitions=[partition])
        self.reports = reader(topic=topics.workers, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.erasures = reader(topic=topics.erasures, partitions=[BROADCAST_PARTITION], unhurried=True)
        self.follower = LogFollower(lambda number: log(topic=topics.replies, partition=number))
        self.question_reader = QuestionReader(
            lambda bucket, number: log(topic=topics.requests(bucket), partition=number)
        )
        self.copies = Copies(self.producer, kafka)
        self.watch = KafkaWatch(kafka, lambda: self.replies.connected)

    def missing(self) -> str | None:
        """Return why Kafka cannot be used, for `/ready`."""
        return None if self.producer.connected and self.replies.connected else self.watch.why

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (self.handoff_producer, self.producer, self.erasures, self.reports, self.replies):
                closing.push_async_callback(part.stop)
            closing.push_async_callback(self.question_reader.stop)
            closing.push_async_callback(self.follower.stop)


class RedisWing:
    """Redis' clients."""

    def __init__(self, settings: Settings) -> None:
        self.history = History(settings.redis, kv=settings.redis_of_kv)
        self.quotas = Quotas(Tariff(settings.quotas, settings.handoff), settings.redis)
        self.handoffs = HandoffStore(settings.redis)

    async def close(self) -> None:
        async with AsyncExitStack() as closing:
            for part in (self.handoffs, self.quotas, self.history):
                closing.push_async_callback(part.close)


class RouterWing:
    """The inbox, from which other services' requests are routed."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer, producer: Producer, source: str) -> None:
        kafka = settings.kafka
        self._finish_s = kafka.request_timeout_ms / 1_000
        self.reader = GroupReader(
            kafka,
            client_id=source,
            topics=[kafka.topics.inbox],
            group=f"{kafka.topic_prefix}replyline-router",
            unhurried=True,
        )
        offsets = OffsetTracker()
        self._commits = Commits(self.reader, offsets)
        self._router = Router(
            reader=self.reader,
            producer=producer,
            letters=DeadLetters(producer, kafka.topics),
            offsets=offsets,
            commits=self._commits,
            topics=kafka.topics,
            tokenizer=tokenizer,
            defaults=settings.request_defaults,
            max_input_tokens=settings.limits.max_input_tokens,
            source=source,
        )

    def start(self, tasks: Tasks) -> None:
        """Route from now on, by two of the process's tasks."""
        tasks.start(self._router.run(), "router")
        tasks.start(self._commits.run(), "routed")

    async def leave(self, tasks: Tasks) -> None:
        """End what is being routed, commit it, and leave the inbox to the other gateways."""
        await tasks.cancel("router")
        try:
            await self._router.finish(self._finish_s)
            await tasks.cancel("routed")
            await self._commits.part()
        finally:
            await self.reader.stop()
