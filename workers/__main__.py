"""The worker process: everything is built here and handed on. `replyline worker`."""

import asyncio
import logging
import os
import sys
from importlib.metadata import version

from shared.conversation.erasure_reader import read_erasures
from shared.conversation.history import History
from shared.errors import ReplylineError, SettingsError
from shared.faq.live import LiveFaq
from shared.kafka import Copies, GroupReader, KafkaWatch, PartitionReader, Producer, await_layout
from shared.process.lifetime import BAD_INPUT_STATUS, fail, run_until_signal, settle_heap
from shared.process.tasks import Tasks
from shared.process.vitals import Vitals
from shared.records.commits import Commits
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.records.requests import Defaults
from shared.settings import Settings, load_settings
from shared.telemetry import metrics
from shared.telemetry.logs import configure_logs, get_logger
from shared.telemetry.status import Readiness, serve_status
from shared.wire.topics import BROADCAST_PARTITION
from workers.building import make_preparer, make_scheduler, open_embedder, open_gpus
from workers.engine.loading import LoadedModel, load_model
from workers.intake.cancels import read_cancels
from workers.intake.lag import watch_lag
from workers.intake.reader import Intake
from workers.kv.opening import open_cache
from workers.request.recent_cancels import RecentCancels
from workers.request.reply_publisher import ReplyPublisher
from workers.schedule.costs import CostModel
from workers.serving.calibration import BUDGET_S, costs_key, load_or_calibrate
from workers.serving.capacity import CapacityPublisher, worker_name
from workers.serving.engine_thread import left_behind
from workers.serving.watchdog import LEAVE_S, LOAD_S, Watchdog, limited
from workers.serving.worker import Worker
from workers.telemetry.tracer import Tracer

_REVISION_CHARS = 12  # of a SHA-256: enough to tell models apart


class WorkerProcess:
    """startup → serve → shutdown."""

    def __init__(self, settings: Settings, model: LoadedModel, costs: CostModel) -> None:
        kafka, topics = settings.kafka, settings.kafka.topics
        client_id = f"replyline-worker-{os.getpid()}"
        info = model.engine.info
        worker_id = worker_name(settings.worker.instance_id)
        defaults = Defaults.of(settings)
        self._settings = settings
        self._model = model
        self._offsets = OffsetTracker()
        self._history = History(settings.redis)
        self._faq = LiveFaq(settings.faq, embed=open_embedder(settings.faq))
        self._producer = Producer(kafka, client_id=client_id)
        self._copies = Copies(self._producer, kafka)
        self._requests = GroupReader(
            kafka,
            client_id=client_id,
            topics=[topics.requests(bucket) for bucket in settings.worker.buckets],
            group=kafka.workers_group,
            instance_id=settings.worker.instance_id,
        )
        self._commits = Commits(self._requests, self._offsets)
        self._cancels = PartitionReader(kafka, client_id=client_id, topic=topics.cancels, partitions=(), unhurried=True)
        self._erasures = PartitionReader(
            kafka, client_id=client_id, topic=topics.erasures, partitions=[BROADCAST_PARTITION], unhurried=True
        )
        self._kafka = KafkaWatch(kafka, lambda: self._erasures.connected)
        self._cancelled = RecentCancels()
        self._kv = open_cache(settings, info, costs) if settings.kv.enabled else None
        self._publisher = ReplyPublisher(self._producer)
        self._worker = Worker(
            engine=model.engine,
            scheduler=make_scheduler(settings, info, costs),
            costs=costs,
            publisher=self._publisher,
            history=self._history,
            offsets=self._offsets,
            topics=topics,
            max_waiting=settings.worker.max_waiting,
            reply_interval_s=settings.worker.reply_interval_ms / 1_000,
            step_limit_s=settings.step_limit_s,
            kv=self._kv,
            tracer=Tracer(worker_id=worker_id),
        )
        self._publisher.settled = self._worker.settled
        preparer = make_preparer(
            settings,
            model,
            faq=self._faq,
            history=self._history,
            kv=self._kv,
            standing=self._worker.engine_loop.standing,
        )
        self._intake = Intake(
            reader=self._requests,
            letters=DeadLetters(self._producer, topics),
            topics=topics,
            preparer=preparer,
            defaults=defaults,
            offsets=self._offsets,
            commits=self._commits,
            worker=self._worker,
            cancelled=self._cancelled,
        )
        self._capacity = CapacityPublisher(
            producer=self._producer,
            topics=topics,
            worker_id=worker_id,
            buckets=settings.worker.buckets,
            outlook=lambda: self._worker.engine_loop.outlook,
            changed=self._worker.outlook_changed,
            partitions=lambda: self._requests.partitions,
        )
        self._leaving = False
        self.vitals = Vitals(open_gpus(info))
        metrics.load.labels("slots").set(info.num_slots)
        metrics.model_info.labels(info.model, info.revision[:_REVISION_CHARS], info.name, version("replyline")).set(1)
        self._tasks = Tasks()

    def draining(self) -> str | None:
        return "it ends, and takes nothing new" if self._leaving else None

    def too_few_copies(self) -> str | None:
        return self._copies.weak

    def not_connected(self) -> str | None:
        connected = self._producer.connected and self._requests.connected and self._erasures.connected
        return None if connected else self._kafka.why

    def history_not_seen(self) -> str | None:
        return self._history.missing()

    def engine_stuck(self) -> str | None:
        return self._worker.engine_loop.stuck()

    async def run(self, stop: asyncio.Event) -> None:
        self._tasks.start(self.vitals.watch(), "vitals")
        self._tasks.start(self._startup(), "startup")
        self._tasks.start(Watchdog(self.engine_stuck, self._settings.step_limit_s).watch(), "watchdog")
        known = True
        try:
            await self._tasks.run_until(stop)
        except Exception as error:
            known = isinstance(error, ReplylineError)
            raise
        finally:
            await self._shutdown(known=known)

    async def _startup(self) -> None:
        """Connect, as long as it takes; then serve."""
        if self._kv is not None:
            self._kv.start()
        self._tasks.start(self._faq.watch(), "faq")
        self._tasks.start(self._history.await_first_answer(), "redis")
        self._tasks.start(self._kafka.run(), "outages")
        await self._producer.start()
        await self._erasures.start()
        self._kafka.first_connected()
        await await_layout(self._producer, self._settings.kafka.topics)
        self._tasks.start(self._copies.watch(), "copies")
        await self._cancels.start()
        self._tasks.start(read_erasures(self._erasures, self._intake.erase), "erasures")
        cancels = read_cancels(
            self._cancels,
            partitions=lambda: self._requests.partitions,
            answered=lambda: self._worker.partitions,
            cancel=self._worker.cancel,
            cancelled=self._cancelled,
            adopt=self._worker.adopt,
        )
        self._tasks.start(cancels, "cancels")
        self._tasks.start(self._publisher.watch(), "replies")
        self._tasks.start(self._worker.run(), "worker")
        await self._requests.start()
        self._tasks.start(self._intake.run(), "intake")
        self._tasks.start(self._commits.run(), "commits")
        self._tasks.start(watch_lag(self._requests, self._settings.kafka.topics), "lag")
        self._tasks.start(self._capacity.run(), "capacity")
        settle_heap()
        get_logger().info("worker_ready", buckets=self._settings.worker.buckets, engine=self._model.engine.info.name)

    async def _shutdown(self, *, known: bool) -> None:
        """Stop intake, finish what is in flight within the limit, commit, close: first what has something to write.
        Without a broker its clients take long to end, and whoever asked this process to end may lose patience. `known`:
        it does not end by a fault of our own, which any record in flight may have brought about."""
        self._leaving = True
        hangs = self.engine_stuck() is not None
        await self._tasks.cancel("startup", "intake", "capacity", "lag")
        await self._capacity.leave()
        await self._intake.finish(0 if hangs else self._settings.kafka.request_timeout_ms / 1_000)
        unfinished = await self._worker.drain(_HUNG_DRAIN_S if hangs else self._settings.worker.drain_s)
        await self._tasks.cancel("commits")
        # Without a broker what is not committed is answered again.
        await (self._commits.part(self._worker.suspects) if known else self._commits.commit())
        if hangs:
            await self._requests.stop()  # its partitions are another's at once
        await self._tasks.cancel()
        await self._publisher.stop()
        await self._history.close()
        if self._kv is not None:
            await asyncio.to_thread(self._kv.close)
        await self._requests.stop()
        await self._cancels.stop()
        await self._erasures.stop()
        await self._producer.stop()
        get_logger().info("worker_stopped", unfinished=unfinished)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    readiness = Readiness({"engine": lambda: "the model is loading"})
    worker = settings.worker
    async with await serve_status(worker.metrics_host, worker.metrics_port, readiness):
        with limited(LOAD_S):
            model = await asyncio.to_thread(load_model, settings)
        info = model.engine.info
        get_logger().info("engine_loaded", engine=info.name, model=info.model, precision=info.precision)
        try:
            key = costs_key(info, threads=worker.threads or os.cpu_count() or 1)
            # What the fake engine takes is scripted anew at each start.
            kept = worker.costs_dir / f"{info.name}-{info.model}-{info.num_slots}.json" if info.name != "fake" else None
            with limited(BUDGET_S + worker.step_limit_s + LEAVE_S):
                costs, how = await asyncio.to_thread(load_or_calibrate, kept, key, model.engine)
            get_logger().info("costs_known", how=how, decode_ms=round(costs.decode_ms(info.num_slots, 0), 2))
            process = WorkerProcess(settings, model, costs)
            readiness.checks = {
                "kafka": process.not_connected,
                "redis": process.history_not_seen,
                "hardware": process.vitals.missing,
                "engine": process.engine_stuck,
                "copies": process.too_few_copies,
                "draining": process.draining,
            }
            await process.run(stop)
        finally:
            if not left_behind():
                model.engine.close()


# What has ended is acknowledged by then, or answered again.
_HUNG_DRAIN_S = 1.0
# The engine's thread asks for the interpreter after every step; the loop's thread is to hand it over sooner than after
# Python's 5 ms, which is half a step.
_SWITCH_INTERVAL_S = 0.0005


def main() -> int:
    try:
        settings = load_settings()
    except SettingsError as error:
        return fail(str(error), BAD_INPUT_STATUS)
    configure_logs(settings.log, process="worker")
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    status = run_until_signal(lambda stop: serve(settings, stop))
    if left_behind():
        get_logger().error("engine_left_behind", cause="its last step did not end")
        logging.shutdown()
        os._exit(status or 1)
    return status


if __name__ == "__main__":
    sys.exit(main())
