"""The gateway process: build all parts and run them. `replyline gateway`."""

import asyncio
import secrets
import sys
from contextlib import AsyncExitStack, suppress

from websockets.asyncio.server import Server

from gateway.access.identity import TokenGate
from gateway.access.jwks import open_jwks, token_gate
from gateway.access.revocation_file import RevocationFile
from gateway.access.start_checks import check_files, check_who_may_ask
from gateway.build import Forwarders, KafkaClients, RedisClients, Serving
from gateway.destination.admission import AdmissionLimits, AdmissionPolicy
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.destination.gate import AdmissionGate
from gateway.destination.lanes import LaneAdmissions
from gateway.destination.memory_watch import MIB, MemoryWatch
from gateway.doors.doors import Doors
from gateway.kafka.demand_publisher import DemandPublisher
from gateway.kafka.request_publisher import RequestPublisher
from gateway.outbound.outbound import Outbound
from gateway.people.handoffs import Handoffs
from gateway.people.people import People
from gateway.people.people_log import PeopleLog
from gateway.request.cursor import CursorKey
from gateway.request.inflight import InflightTable
from gateway.serving.observing import Observing
from gateway.serving.shadowing import Shadowing
from gateway.session.rate_limits import RateLimits
from gateway.session.recall import Recall
from gateway.telemetry.trace_spans import spans_of
from gateway.telemetry.tracer import Tracer
from shared.errors import SettingsError
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.live import LiveFaq
from shared.kafka import await_layout
from shared.model.tokenizer import Tokenizer, open_tokenizer
from shared.process.clock import now_unix_ms
from shared.process.lifetime import BAD_INPUT_STATUS, fail, run_until_signal, settle_heap
from shared.process.tasks import Tasks
from shared.process.vitals import Vitals
from shared.records.log_readers import consume_replies, load_erasures, read_erasures, read_people, read_reports
from shared.settings import Settings, load_settings
from shared.settings.gateway import GatewaySettings
from shared.sockets.listening import ListenAddress
from shared.sockets.open_sockets import REFUSALS, OpenSockets
from shared.telemetry import metrics
from shared.telemetry.logs import configure_logs, get_logger
from shared.telemetry.status import Drain, Readiness, serve_status
from shared.tracing.export import open_exporter
from shared.tracing.spans import KeepRules
from shared.wire.topics import BROADCAST_PARTITION


class GatewayProcess:
    """startup → serve → drain → close."""

    def __init__(self, settings: Settings, tokenizer: Tokenizer) -> None:
        source = f"replyline-gateway-{settings.gateway.reply_partition}"
        self._settings, self._source = settings, source
        self._faq = LiveFaq(settings.faq)
        self._redis = RedisClients(settings)
        self._kafka = KafkaClients(settings, source)
        self._outbound = Outbound(settings, source)
        self._memory = MemoryWatch(settings.gateway.memory_budget_mib * MIB)
        admissions = LaneAdmissions(AdmissionPolicy(enabled=settings.admission.enabled))
        self._inflight = InflightTable()
        self._claims = self._make_claims()
        registry, partition_of = self._kafka.versions.registry, self._claims.partition_of
        self._admission_gate = AdmissionGate(admissions, self._memory, registry=registry, partition_of=partition_of)
        self._token_count = TokenCount(tokenizer, settings.limits.max_input_tokens)
        self._passing = Forwarders(
            settings,
            self._token_count,
            self._kafka.producer,
            source,
            admission_gate=self._admission_gate,
            claims=self._claims,
        )
        gate = token_gate(settings.auth)
        self._revocations = None if gate is None else RevocationFile(settings.auth.revoked, gate)
        self._jwks = open_jwks(settings.auth, gate)
        most, proxies = settings.gateway.max_connections, settings.gateway.trusted_proxies
        self._sessions = OpenSockets(most=most, quotas=settings.quotas, proxies=proxies)
        self._sockets = OpenSockets(most=most, quotas=settings.quotas, proxies=proxies, spare=REFUSALS)
        self._demand = self._make_demand(admissions)
        self._tracer = self._make_tracer()
        self._observing = Observing(
            producer=self._kafka.side_producer,
            topic=settings.kafka.topics.observations,
            state=lambda: self._admission_gate.state,
        )
        self._serving = self._make_serving()
        self._draining = Drain()
        self._ready = self._readiness()
        self._doors = self._make_doors(gate)
        self._tasks = Tasks()
        self._unfinished = 0

    def _make_claims(self) -> Claims:
        return Claims(
            places=self._redis.places,
            producer=self._kafka.producer,
            topics=self._settings.kafka.topics,
            is_open=lambda name: self._inflight.get(name) is not None,
            has_ended=self._inflight.has_ended,
            generation=lambda session: self._serving.erasing.known_generation(session, now_unix_ms()),
        )

    def _make_demand(self, admissions: LaneAdmissions) -> DemandPublisher:
        return DemandPublisher(
            producer=self._kafka.side_producer,
            topic=self._settings.kafka.topics.demand,
            gateway_id=self._source,
            admissions=admissions,
            ladder=self._admission_gate.ladder,
            epoch=lambda: self._admission_gate.state.epoch,
        )

    def _make_tracer(self) -> Tracer:
        settings = self._settings
        return Tracer(
            rules=KeepRules(settings.tracing.ratio),
            exporter=open_exporter(settings.tracing, spans_of),
            gateway_id=self._source,
            topics=settings.kafka.topics,
        )

    def _make_serving(self) -> Serving:
        settings, kafka, redis = self._settings, self._kafka, self._redis
        partition = settings.gateway.reply_partition
        publisher = RequestPublisher(
            producer=kafka.producer,
            topics=settings.kafka.topics,
            reply_partition=partition,
            source=self._source,
            away=lambda: kafka.watch.away,
            next_offset=lambda: kafka.replies.next_offset(partition),
        )
        return Serving(
            limits=AdmissionLimits.of(settings),
            token_count=self._token_count,
            faq=self._faq,
            policy=AnswerPolicy.of(
                settings.answers, languages=(), most=settings.worker.grounding_entries, handoff=settings.handoff.enabled
            ),
            history=redis.history,
            publisher=publisher,
            admission_gate=self._admission_gate,
            rate_limits=RateLimits(quotas=redis.quotas, sockets=self._sessions),
            jwks=self._jwks,
            key=CursorKey(_cursor_secret(settings.gateway)),
            recall=Recall(
                adopt=publisher.adopt,
                topic_of=publisher.topic_of,
                follower=kafka.follower,
                question_reader=kafka.question_reader,
            ),
            people=self._make_people(),
            tracer=self._tracer,
            shadowing=Shadowing(
                publisher=publisher,
                producer=kafka.side_producer,
                admission_gate=self._admission_gate,
            ),
            observing=self._observing,
            claims=self._claims,
            inflight=self._inflight,
        )

    def _make_doors(self, gate: TokenGate | None) -> Doors:
        return Doors(
            settings=self._settings,
            gate=gate,
            gateway=self._serving.gateway,
            faq=self._faq,
            history=self._redis.history,
            erasing=self._serving.erasing,
            talking=self._serving.talking,
            memory=self._memory,
            producer=self._kafka.handoff_producer,
            running=self._redis.running,
            outbound=self._outbound,
            readiness=self._ready,
            sockets=self._sockets,
        )

    def _make_people(self) -> People:
        settings, redis = self._settings, self._redis
        handoffs = Handoffs(
            producer=self._kafka.handoff_producer,
            topic=settings.kafka.topics.handoffs,
            store=redis.handoffs,
            open_s=settings.redis.history_ttl_s,
            source=self._source,
            quotas=redis.quotas,
        )
        return People(
            settings=settings.handoff,
            handoffs=handoffs,
            quotas=redis.quotas,
            history=redis.history,
            bad_answers=redis.bad_answers,
            log=PeopleLog(producer=self._kafka.handoff_producer, topics=settings.kafka.topics),
            observe=self._observing.receive,
        )

    def _readiness(self) -> Readiness:
        return Readiness(
            {
                "kafka": self._kafka.missing,
                "redis": self._redis.history.missing,
                "keys": lambda: None if self._jwks is None else self._jwks.missing(),
                "memory": self._memory.missing,
                "connections": lambda: self._sessions.missing() or self._sockets.missing(),
                "copies": lambda: self._kafka.copies.weak,
                "draining": self._leaving,
            },
            # Without these the FAQ answers and open answers can be resumed, so the gateway stays ready.
            optional=frozenset({"kafka", "redis"}),
            drain=self._draining,
        )

    def _leaving(self) -> str | None:
        leaves = self._admission_gate.draining and not self._draining.done
        return "it accepts no new connections" if leaves else None

    def _show_what_is_set(self) -> None:
        """Export the promise and whether a rollout is active."""
        promised = self._settings.promise
        metrics.promise.labels("first_token").set(promised.first_token_ms / 1_000)
        metrics.promise.labels("whole").set(promised.deadline_ms / 1_000)
        metrics.inflight.set_function(lambda: len(self._serving.inflight))
        metrics.rollout.set_function(lambda: self._admission_gate.state.rule is not None)

    async def run(self, stop: asyncio.Event) -> None:
        settings = self._settings.gateway
        self._show_what_is_set()
        async with await serve_status(ListenAddress.of_settings("gateway", settings, "metrics_port"), self._ready):
            if self._jwks is not None:
                await self._jwks.start()
            async with AsyncExitStack() as closing:  # if one part fails to close, the others are closed all the same
                server = await self._doors.listen(closing)
                closing.callback(lambda: get_logger().info("gateway_stopped", unfinished=self._unfinished))
                closing.push_async_callback(self._redis.close)
                closing.push_async_callback(self._claims.close)
                closing.push_async_callback(self._tracer.stop)
                closing.push_async_callback(self._kafka.close)
                closing.push_async_callback(self._demand.leave)
                closing.push_async_callback(self._serving.shadowing.sending.cancel)
                closing.push_async_callback(self._serving.observing.sending.cancel)
                closing.push_async_callback(self._tasks.cancel)
                closing.push_async_callback(self._doors.close)
                await self._doors.listen_grpc(self._tasks, closing)
                await self._serve(server, stop)

    async def _serve(self, server: Server, stop: asyncio.Event) -> None:
        host, port = server.sockets[0].getsockname()[:2]
        get_logger().info("gateway_listening", host=host, port=port)
        if self._settings.auth.decided_mode == "anonymous":
            get_logger().warning(
                "anonymous", tenant=self._settings.tenant, means="any client that reaches this port may ask questions"
            )
        if self._jwks is not None:
            self._tasks.start(self._jwks.watch(), "jwks")
        if self._revocations is not None:
            self._tasks.start(self._revocations.watch(), "revocations")
        self._tasks.start(Vitals().watch(), "vitals")
        self._tasks.start(self._admission_gate.watch(), "admission_gate")
        self._tasks.start(self._memory.watch(), "memory")
        self._tasks.start(self._tracer.watch(), "traces")
        self._doors.start(self._tasks)
        self._tasks.start(self._faq.watch(), "faq")
        self._tasks.start(self._startup(), "startup")
        try:
            await self._tasks.run_until(stop, self._draining.asked)
            if not stop.is_set():
                await self._leave(server)
                self._tasks.start(self._finish(), "finish")
                await self._tasks.run_until(stop)
        finally:
            await self._drain(server)

    async def _startup(self) -> None:
        """Connect to Kafka and Redis, for as long as it takes. The page is served and the FAQ answers before the
        connection is made."""
        kafka = self._kafka
        self._tasks.start(self._redis.history.await_first_answer(), "redis")
        self._tasks.start(kafka.watch.run(), "outages")
        await kafka.replies.start()
        kafka.watch.start_logging_outages()
        self._tasks.start(consume_replies(kafka.replies, self._serving.receiving.receive_replies), "replies")
        self._tasks.start(read_reports(kafka.reports, self._admission_gate.update_worker), "reports")
        await kafka.erasures.start()
        self._serving.erasing.log.begin_at(kafka.erasures.next_offset(BROADCAST_PARTITION) or 0)
        self._tasks.start(read_erasures(kafka.erasures, self._serving.erasing.apply), "erasures")
        if self._settings.edge.signed_faq is not None:
            self._tasks.start(load_erasures(self._settings.kafka, self._serving.erasing.log), "erasure log")
        talking = self._serving.talking
        self._tasks.start(read_people(kafka.people, talking.apply, talking.load), "people")
        self._tasks.start(talking.watch(), "talks")
        await kafka.handoff_producer.start()
        await kafka.producer.start()
        await await_layout(kafka.producer, self._settings.kafka.topics)
        self._tasks.start(kafka.versions.watch(), "versions")
        self._tasks.start(kafka.copies.watch(), "copies")
        await kafka.side_producer.start()
        self._tasks.start(self._demand.run(), "demand")
        settle_heap()
        get_logger().info("gateway_ready", reply_partition=self._settings.gateway.reply_partition)
        self._outbound.start(self._tasks)
        await self._passing.start(self._tasks)

    async def _leave(self, server: Server) -> None:
        """Stop accepting, and leave the inbox to the other gateways."""
        if self._admission_gate.draining:
            return
        self._admission_gate.draining = True
        server.close(close_connections=False)
        await self._doors.leave()
        await self._tasks.cancel("startup")
        await self._outbound.leave(self._tasks)
        await self._passing.leave(self._tasks)

    async def _finish(self) -> None:
        await self._serving.idle()
        self._draining.done = True
        get_logger().info("gateway_drained")

    async def _drain(self, server: Server) -> None:
        """Stop accepting, and finish the open answers within the time limit."""
        await self._leave(server)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.gateway.drain_s):
                await self._serving.idle()
        self._unfinished = len(self._serving.inflight)


def _cursor_secret(gateway: GatewaySettings) -> bytes:
    secret = gateway.cursor_secret_bytes()
    if secret is not None:
        return secret
    get_logger().info("cursor_secret_unset", means="a client that lost its socket can resume only at this gateway")
    return secrets.token_bytes(32)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    tokenizer = open_tokenizer(settings.worker.engine, settings.model.dir)
    await GatewayProcess(settings, tokenizer).run(stop)


def main() -> int:
    try:
        settings = load_settings()
        check_who_may_ask(settings)
    except SettingsError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    configure_logs(settings.log, process="gateway")
    check_files(settings.gateway.max_connections)
    return run_until_signal(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    sys.exit(main())
