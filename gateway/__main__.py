"""The gateway process: everything is built here and handed on. `replyline gateway`."""

import asyncio
import secrets
import sys

from websockets.asyncio.server import Server

from gateway.access.charges import Tariff
from gateway.access.identity import TokenGate, TokenRules
from gateway.access.jwks import Jwks
from gateway.access.open_sockets import OpenSockets
from gateway.access.quotas import Quotas
from gateway.access.token_keys import KeySet, secret_key
from gateway.admission.control import Admission, AdmissionLimits, AdmissionPolicy
from gateway.frontends.static import StaticFiles
from gateway.frontends.websocket import WebSocketFrontend
from gateway.kafka.fleet_reader import read_reports
from gateway.kafka.log_follower import LogFollower
from gateway.kafka.question_reader import QuestionReader
from gateway.kafka.reply_consumer import consume_replies
from gateway.kafka.request_publisher import RequestPublisher
from gateway.people.handoffs import Handoffs
from gateway.people.people import People
from gateway.request.cursor import CursorKey
from gateway.router import Router
from gateway.serving.admission_gate import AdmissionGate
from gateway.serving.gateway import Gateway
from gateway.serving.memory_watch import MIB, MemoryWatch
from gateway.session.protocol import SessionLimits
from gateway.session.rate_limits import RateLimits
from gateway.session.resumption import Resumption
from gateway.telemetry.trace_spans import spans_of
from gateway.telemetry.tracer import Tracer
from shared.conversation.erasure_reader import read_erasures
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.history import History
from shared.errors import SettingsError
from shared.faq.fallback import DEFAULT_MIN_SCORE
from shared.faq.live import LiveFaq
from shared.kafka import Copies, GroupReader, KafkaWatch, LogReader, PartitionReader, Producer, await_layout
from shared.model.tokenizer import Tokenizer
from shared.process.clock import correction_ms
from shared.process.lifetime import BAD_INPUT_STATUS, fail, raise_file_limit, run_until_signal, settle_heap
from shared.process.tasks import Tasks
from shared.process.vitals import Vitals
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.records.requests import Defaults
from shared.settings import PREFIX, Settings, load_settings
from shared.settings.auth import AuthSettings
from shared.settings.gateway import GatewaySettings
from shared.telemetry import metrics
from shared.telemetry.logs import configure_logs, get_logger
from shared.telemetry.status import Readiness, serve_status
from shared.tracing.export import open_exporter
from shared.tracing.keep import KeepRules
from shared.wire.messages import Limits
from shared.wire.topics import BROADCAST_PARTITION

# Beside the clients' sockets: Kafka's and Redis', and what is open for a moment.
_SPARE_FILES = 256


class GatewayProcess:
    """startup → serve → shutdown."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        kafka, topics = settings.kafka, settings.kafka.topics
        partition = settings.gateway.reply_partition
        source = f"replyline-gateway-{partition}"
        defaults = Defaults.of(settings)
        self._settings = settings
        self._history = History(settings.redis, kv=settings.redis_of_kv)
        self._faq = LiveFaq(settings.faq)
        self._producer = Producer(kafka, client_id=source)
        self._copies = Copies(self._producer, kafka)
        self._replies = PartitionReader(kafka, client_id=source, topic=topics.replies, partitions=[partition])
        self._reports = PartitionReader(
            kafka, client_id=source, topic=topics.workers, partitions=[BROADCAST_PARTITION], unhurried=True
        )
        self._erasures = PartitionReader(
            kafka, client_id=source, topic=topics.erasures, partitions=[BROADCAST_PARTITION], unhurried=True
        )
        self._kafka = KafkaWatch(kafka, lambda: self._replies.connected)
        self._inbox = GroupReader(
            kafka,
            client_id=source,
            topics=[topics.inbox],
            group=f"{kafka.topic_prefix}replyline-router",
            unhurried=True,
        )
        routed = OffsetTracker()
        self._routed = Commits(self._inbox, routed)
        self._router = Router(
            reader=self._inbox,
            producer=self._producer,
            letters=DeadLetters(self._producer, topics),
            offsets=routed,
            commits=self._routed,
            topics=topics,
            tokenizer=tokenizer,
            defaults=defaults,
            max_input_tokens=settings.limits.max_input_tokens,
            source=source,
        )
        self._memory = MemoryWatch(settings.gateway.memory_budget_mib * MIB)
        self._admission_gate = AdmissionGate(
            Admission(AdmissionPolicy(enabled=settings.admission.enabled)), self._memory
        )
        self._follower = LogFollower(
            lambda number: LogReader(kafka, client_id=source, topic=topics.replies, partition=number)
        )
        self._question_reader = QuestionReader(
            lambda bucket, number: LogReader(kafka, client_id=source, topic=topics.requests(bucket), partition=number)
        )
        self._quotas = Quotas(Tariff(settings.quotas, settings.handoff), settings.redis)
        self._handoffs = HandoffStore(settings.redis)
        gate = _token_gate(settings.auth)
        self._jwks = _jwks(settings.auth, gate)
        # One of their own: a producer that fails to deliver is replaced, and questions would wait for that.
        self._handoff_producer = Producer(kafka, client_id=f"{source}-handoffs")
        self._tracer = Tracer(
            rules=KeepRules(settings.tracing.ratio),
            exporter=open_exporter(settings.tracing, spans_of),
            gateway_id=source,
            topics=topics,
        )
        publisher = RequestPublisher(
            producer=self._producer,
            topics=topics,
            defaults=defaults,
            reply_partition=partition,
            source=source,
            away=lambda: self._kafka.away,
        )
        sockets = OpenSockets(
            most=settings.gateway.max_connections,
            quotas=settings.quotas,
            proxies=settings.gateway.trusted_proxies,
        )
        self._gateway = Gateway(
            rate_limits=RateLimits(quotas=self._quotas, jwks=self._jwks, sockets=sockets),
            admission_gate=self._admission_gate,
            resumption=Resumption(
                key=CursorKey(_cursor_secret(settings.gateway)),
                adopt=publisher.adopt,
                follower=self._follower,
                question_reader=self._question_reader,
                partition=partition,
                next_offset=lambda: self._replies.next_offset(partition),
                max_inflight=settings.gateway.max_inflight,
            ),
            people=People(
                settings=settings.handoff,
                handoffs=Handoffs(
                    producer=self._handoff_producer,
                    topic=topics.handoffs,
                    store=self._handoffs,
                    open_s=settings.redis.history_ttl_s,
                    source=source,
                    quotas=self._quotas,
                ),
                quotas=self._quotas,
            ),
            tracer=self._tracer,
            limits=AdmissionLimits.of(settings),
            tokenizer=tokenizer,
            faq=self._faq,
            min_score=DEFAULT_MIN_SCORE,
            history=self._history,
            publisher=publisher,
        )
        self._follower.replied = self._gateway.replied
        self._frontend = WebSocketFrontend(
            gateway=self._gateway,
            settings=settings.gateway,
            session_limits=_session_limits(settings),
            tenant=settings.tenant,
            gate=gate,
            memory=self._memory,
            files=StaticFiles(),
        )
        self._readiness = Readiness(
            {
                "kafka": self._kafka_missing,
                "redis": self._history.missing,
                "keys": self._keys_missing,
                "memory": self._memory.missing,
                "connections": sockets.missing,
                "copies": lambda: self._copies.weak,
                "draining": self._draining,
            },
            # The FAQ answers then, and what is held here is resumed: the door stays open.
            optional=frozenset({"kafka", "redis"}),
        )
        metrics.promise.labels("first_token").set(settings.promise.first_token_ms / 1_000)
        metrics.promise.labels("whole").set(settings.promise.deadline_ms / 1_000)
        self._tasks = Tasks()

    def _kafka_missing(self) -> str | None:
        if self._producer.connected and self._replies.connected:
            return None
        return self._kafka.why

    def _keys_missing(self) -> str | None:
        return None if self._jwks is None else self._jwks.missing()

    def _draining(self) -> str | None:
        return "it ends, and takes nobody new" if self._gateway.draining else None

    async def run(self, stop: asyncio.Event) -> None:
        settings = self._settings.gateway
        async with await serve_status(settings.metrics_host, settings.metrics_port, self._readiness):
            await self._serve(stop)

    async def _serve(self, stop: asyncio.Event) -> None:
        if self._jwks is not None:
            await self._jwks.start()
        server = await self._frontend.listen()
        host, port = server.sockets[0].getsockname()[:2]
        get_logger().info("gateway_listening", host=host, port=port)
        if self._settings.auth.decided_mode == "anonymous":
            get_logger().warning("anonymous", tenant=self._settings.tenant, means="whoever reaches this port may ask")
        if self._jwks is not None:
            self._tasks.start(self._jwks.watch(), "jwks")
        self._tasks.start(Vitals().watch(), "vitals")
        self._tasks.start(self._admission_gate.watch(), "admission_gate")
        self._tasks.start(self._memory.watch(), "memory")
        self._tasks.start(self._tracer.watch(), "traces")
        self._tasks.start(self._frontend.sweep(), "sweep")
        self._tasks.start(self._frontend.relieve(), "relieve")
        self._tasks.start(self._faq.watch(), "faq")
        self._tasks.start(self._startup(), "startup")
        try:
            await self._tasks.run_until(stop)
        finally:
            await self._shutdown(server)

    async def _startup(self) -> None:
        """Connect, as long as it takes: until then the page is served and the FAQ answers."""
        self._tasks.start(self._history.await_first_answer(), "redis")
        self._tasks.start(self._kafka.run(), "outages")
        await self._replies.start()
        self._kafka.first_connected()
        self._tasks.start(consume_replies(self._replies, self._gateway.replied), "replies")
        self._tasks.start(read_reports(self._reports, self._admission_gate.reported), "reports")
        await self._erasures.start()
        self._tasks.start(read_erasures(self._erasures, self._gateway.erased), "erasures")
        await self._producer.start()
        await await_layout(self._producer, self._settings.kafka.topics)
        self._tasks.start(self._copies.watch(), "copies")
        await self._handoff_producer.start()
        settle_heap()
        get_logger().info("gateway_ready", reply_partition=self._settings.gateway.reply_partition)
        await self._inbox.start()
        self._tasks.start(self._router.run(), "router")
        self._tasks.start(self._routed.run(), "routed")

    async def _shutdown(self, server: Server) -> None:
        """Stop accepting, leave the inbox to the other gateways, finish what is in flight within the limit, tell the
        clients, close."""
        self._gateway.draining = True
        server.close(close_connections=False)
        self._frontend.announce_shutdown()
        await self._tasks.cancel("startup", "router")
        await self._router.finish(self._settings.kafka.request_timeout_ms / 1_000)
        await self._tasks.cancel("routed")
        await self._routed.part()
        await self._inbox.stop()
        try:
            async with asyncio.timeout(self._settings.gateway.drain_s):
                await self._gateway.idle()
        except TimeoutError:
            pass
        unfinished = len(self._gateway.inflight)
        await self._frontend.close_all()
        await self._tasks.cancel()
        await self._follower.stop()
        await self._question_reader.stop()
        await self._replies.stop()
        await self._reports.stop()
        await self._erasures.stop()
        await self._producer.stop()
        await self._handoff_producer.stop()
        await self._tracer.stop()
        await self._history.close()
        await self._quotas.close()
        await self._handoffs.close()
        await server.wait_closed()
        get_logger().info("gateway_stopped", unfinished=unfinished)


def _token_gate(auth: AuthSettings) -> TokenGate | None:
    """Return the gate that checks tokens; None where anyone may ask."""
    if auth.decided_mode != "token":
        return None
    rules = TokenRules(issuer=auth.issuer, audience=auth.audience)
    secret = auth.secret_bytes()
    # Until a JWKS has been read, a key that is not known may be in it.
    keys = KeySet((secret_key(secret),) if secret else (), complete=auth.jwks is None)
    return TokenGate(rules, keys, correction_ms)


def _jwks(auth: AuthSettings, gate: TokenGate | None) -> Jwks | None:
    if gate is None or auth.jwks is None:
        return None
    return Jwks(source=auth.jwks, gate=gate, own_keys=gate.keys.keys)


def _cursor_secret(gateway: GatewaySettings) -> bytes:
    secret = gateway.cursor_secret_bytes()
    if secret is not None:
        return secret
    get_logger().info("cursor_secret_unset", means="a client that lost its socket resumes at this gateway only")
    return secrets.token_bytes(32)


def _session_limits(settings: Settings) -> SessionLimits:
    gateway = settings.gateway
    return SessionLimits(
        hello_timeout_ms=gateway.hello_timeout_s * 1_000,
        heartbeat_ms=gateway.heartbeat_s * 1_000,
        messages_per_minute=gateway.messages_per_minute,
        handoff=settings.handoff.enabled,
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


def _check_who_may_ask(settings: Settings) -> None:
    """Check who may ask. Raises `SettingsError`: nobody is let in because something was forgotten."""
    if settings.auth.decided_mode is None:
        raise SettingsError(
            f"it is not said who may ask: set {PREFIX}AUTH__SECRET_FILE or {PREFIX}AUTH__JWKS to check tokens, or "
            f"{PREFIX}AUTH__MODE=anonymous to let anyone in as tenant {settings.tenant!r}"
        )


def _check_files(max_connections: int) -> None:
    """Warn where a process may have fewer files than clients: those above are not even refused."""
    wanted = max_connections + _SPARE_FILES
    allowed = raise_file_limit(wanted)
    if allowed < wanted:
        action = f"ulimit -Hn {wanted}, or lower {PREFIX}GATEWAY__MAX_CONNECTIONS"
        get_logger().warning("few_files", allowed=allowed, wanted=wanted, action=action)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    # The scripted engine has no model; its tokens are bytes.
    fake = settings.worker.engine == "fake"
    tokenizer = Tokenizer.byte_level() if fake else Tokenizer.load(settings.model.dir)
    await GatewayProcess(settings, tokenizer).run(stop)


def main() -> int:
    try:
        settings = load_settings()
        _check_who_may_ask(settings)
    except SettingsError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    configure_logs(settings.log, process="gateway")
    _check_files(settings.gateway.max_connections)
    return run_until_signal(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    sys.exit(main())
