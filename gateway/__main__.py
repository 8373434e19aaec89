"""The gateway process: everything is built here and handed on. `replyline gateway`."""

import asyncio
import sys

from websockets.asyncio.server import Server

from gateway.admission import Admission, AdmissionLimits, AdmissionPolicy
from gateway.capacity_reader import read_reports
from gateway.frontends.websocket import WebSocketFrontend
from gateway.gatekeeper import Gatekeeper
from gateway.gateway import Gateway
from gateway.reply_consumer import consume_replies
from gateway.request_publisher import RequestPublisher
from gateway.router import Router
from gateway.session import SessionLimits
from gateway.static import StaticFiles
from shared.errors import SettingsError
from shared.fallback import DEFAULT_MIN_SCORE
from shared.faq import FaqIndex
from shared.history import History
from shared.kafka import GroupReader, PartitionReader, Producer, report_outages
from shared.logs import configure_logs, get_logger
from shared.messages import Limits
from shared.process import BAD_INPUT_STATUS, fail, run_until_signal, settle_heap
from shared.requests import Defaults
from shared.settings import Settings, load_settings
from shared.status import Readiness
from shared.tasks import TaskSet
from shared.tokenizer import Tokenizer
from shared.topics import BucketEdges


class GatewayProcess:
    """startup → serve → shutdown."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        kafka, topics = settings.kafka, settings.kafka.topics
        partition = settings.gateway.reply_partition
        source = f"replyline-gateway-{partition}"
        edges = BucketEdges(settings.limits.short_max_tokens, settings.limits.medium_max_tokens)
        defaults = Defaults.of(settings)
        self._settings = settings
        self._history = History(settings.redis)
        self._producer = Producer(kafka, client_id=source)
        self._replies = PartitionReader(kafka, client_id=source, topic=topics.replies, partitions=[partition])
        self._reports = PartitionReader(kafka, client_id=source, topic=topics.workers, unhurried=True)
        self._inbox = GroupReader(
            kafka,
            client_id=source,
            topics=[topics.inbox],
            group=f"{kafka.topic_prefix}replyline-router",
            unhurried=True,
        )
        self._router = Router(
            reader=self._inbox,
            producer=self._producer,
            topics=topics,
            tokenizer=tokenizer,
            edges=edges,
            defaults=defaults,
            max_input_tokens=settings.limits.max_input_tokens,
            source=source,
        )
        self._gatekeeper = Gatekeeper(Admission(AdmissionPolicy.of(settings)))
        self._gateway = Gateway(
            gatekeeper=self._gatekeeper,
            limits=AdmissionLimits.of(settings),
            edges=edges,
            tokenizer=tokenizer,
            faq=FaqIndex.load(settings.faq.path),
            min_score=settings.faq.min_score or DEFAULT_MIN_SCORE,
            history=self._history,
            publisher=RequestPublisher(
                producer=self._producer,
                topics=topics,
                defaults=defaults,
                reply_partition=partition,
                source=source,
            ),
        )
        self._frontend = WebSocketFrontend(
            gateway=self._gateway,
            settings=settings.gateway,
            session_limits=_session_limits(settings),
            tenant=settings.tenant,
            readiness=Readiness({"kafka": self._kafka_missing, "redis": self._redis_missing}),
            files=StaticFiles(),
        )
        self._tasks = TaskSet()

    def _kafka_missing(self) -> str | None:
        if self._producer.connected and self._replies.connected:
            return None
        return f"no Kafka at {self._settings.kafka.bootstrap_servers}"

    def _redis_missing(self) -> str | None:
        return None if self._history.seen else f"no Redis at {self._settings.redis.url}"

    async def run(self, stop: asyncio.Event) -> None:
        server = await self._frontend.listen()
        host, port = server.sockets[0].getsockname()[:2]
        get_logger().info("gateway_listening", host=host, port=port)
        self._tasks.start("gatekeeper", self._gatekeeper.watch())
        self._tasks.start("sweep", self._frontend.sweep())
        self._tasks.start("relieve", self._frontend.relieve())
        self._tasks.start("startup", self._startup())
        try:
            await self._tasks.run_until(stop)
        finally:
            await self._shutdown(server)

    async def _startup(self) -> None:
        """Connect, as long as it takes: until then the page is served and the FAQ answers."""
        self._tasks.start("redis", self._history.await_first_answer())
        await self._replies.start()
        self._tasks.start("replies", consume_replies(self._replies, self._gateway.replied))
        self._tasks.start("outages", report_outages(lambda: self._replies.connected))
        self._tasks.start("reports", read_reports(self._reports, self._gatekeeper.reported))
        await self._producer.start()
        settle_heap()
        get_logger().info("gateway_ready", reply_partition=self._settings.gateway.reply_partition)
        await self._inbox.start()
        self._tasks.start("router", self._router.run())

    async def _shutdown(self, server: Server) -> None:
        """Stop accepting, finish what is in flight within the limit, tell the clients, close."""
        self._gateway.draining = True
        server.close(close_connections=False)
        self._frontend.announce_shutdown()
        await self._tasks.cancel("startup", "router")
        try:
            async with asyncio.timeout(self._settings.gateway.drain_s):
                await self._gateway.idle()
        except TimeoutError:
            pass
        unfinished = len(self._gateway.inflight)
        await self._frontend.close_all()
        await self._tasks.cancel()
        await self._inbox.stop()
        await self._replies.stop()
        await self._reports.stop()
        await self._producer.stop()
        await self._history.close()
        await server.wait_closed()
        get_logger().info("gateway_stopped", unfinished=unfinished)


def _session_limits(settings: Settings) -> SessionLimits:
    gateway = settings.gateway
    return SessionLimits(
        hello_timeout_ms=gateway.hello_timeout_s * 1_000,
        heartbeat_ms=gateway.heartbeat_s * 1_000,
        messages_per_minute=gateway.messages_per_minute,
        announced=Limits(
            max_message_bytes=gateway.max_message_bytes,
            max_input_tokens=settings.limits.max_input_tokens,
            max_output_tokens=settings.limits.max_output_tokens,
            max_inflight=gateway.max_inflight_per_connection,
            messages_per_minute=gateway.messages_per_minute,
            first_token_ms=settings.promise.first_token_ms,
            deadline_ms=settings.promise.deadline_ms,
        ),
    )


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    # The scripted engine has no model; its tokens are bytes.
    fake = settings.worker.engine == "fake"
    tokenizer = Tokenizer.byte_level() if fake else Tokenizer.load(settings.model.dir)
    await GatewayProcess(settings, tokenizer).run(stop)


def main() -> int:
    try:
        settings = load_settings()
    except SettingsError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    configure_logs(settings.log, process="gateway")
    return run_until_signal(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    sys.exit(main())
