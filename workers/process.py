"""The parts of a worker, built and handed on, and its life: startup, serve, drain, close."""

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from shared.conversation.erasures import ERASED_FOR_S
from shared.conversation.history import History
from shared.errors import ReplylineError
from shared.faq.live import LiveFaq
from shared.kafka import Producer, await_lane, await_layout
from shared.process.clock import wire_unix_ms
from shared.process.gpu import short_device
from shared.process.lifetime import settle_heap
from shared.process.tasks import Tasks
from shared.process.vitals import Vitals
from shared.records.log_readers import read_erasures
from shared.settings import CPU_ENGINES, FaqSettings, Settings
from shared.telemetry import metrics
from shared.telemetry.faults import contained
from shared.telemetry.logs import get_logger
from shared.telemetry.status import Drain, Readiness
from shared.wire.lanes import CHAMPION, SHADOW
from shared.wire.topics import kept_ms
from workers.building import open_embedder, open_gpus
from workers.connections import KafkaConnections
from workers.engine.load_model import LoadedModel
from workers.engine.upstream.model import UpstreamModel
from workers.intake.cancels import read_cancels
from workers.intake.reader import Intake, watch_lag
from workers.intake.triage import ANSWERED_MS
from workers.request.open_answers import OpenAnswers
from workers.request.recent_answers import RecentCancels
from workers.request.reply_publisher import ReplyPublisher
from workers.schedule.costs import CostModel
from workers.serving.capacity import CapacityPublisher, worker_name
from workers.serving.loaded_versions import LoadedVersions
from workers.serving.shadow import NoLetters, NoReplies, Shadow
from workers.serving.watchdog import Watchdog
from workers.serving.worker import Worker
from workers.telemetry.tracer import Tracer
from workers.versions.beginning import remember_last_served
from workers.versions.candidate import Candidate, open_candidate
from workers.versions.loader import VersionLoader
from workers.versions.rehearsal import rehearse
from workers.versions.switcher import Means, Switcher

if TYPE_CHECKING:
    from workers.serving.edge_connections import EdgeConnections


def read_faq(settings: FaqSettings) -> LiveFaq:
    """Read the FAQ. Raises `SettingsError`."""
    return LiveFaq(settings, embed=open_embedder(settings))


class WorkerProcess:
    """startup → serve → drain → close."""

    def __init__(
        self,
        settings: Settings,
        candidate: Candidate | None,
        model: LoadedModel | UpstreamModel,
        costs: CostModel,
        faq: LiveFaq,
        *,
        hangup: asyncio.Event,
        draining: Drain,
    ) -> None:
        """`candidate` is what `model` was loaded from; None for an upstream's."""
        self._settings, self._draining = settings, draining
        worker = settings.worker
        self._worker_id = worker_name(worker.instance_id, short_device(os.environ), lane=worker.lane)
        source = f"replyline-{self._worker_id}"
        self._kafka = KafkaConnections(settings, source)
        of_edge = settings.redis_of_kv if settings.edge.centre else None  # there this process erases, too
        self._history = History(settings.redis, kv=of_edge, journal_of=settings.journal_of)
        self._edge = self._make_edge() if settings.edge.centre else None
        self._faq = faq
        self._cancelled = RecentCancels()
        self._shadow = self._make_shadow() if settings.worker.lane == SHADOW else None
        replies = settings.kafka.topics.replies
        self._publisher = (
            ReplyPublisher(self._kafka.producer, gateways=replies, source=source)
            if self._shadow is None
            else NoReplies()
        )
        self._answers = OpenAnswers(publisher=self._publisher, offsets=self._kafka.offsets, replies=replies)
        self._versions = LoadedVersions()
        self._worker = self._make_worker()
        self._tasks = Tasks()
        self._loader = VersionLoader(faq=self._faq, history=self._history, worker=self._worker, tasks=self._tasks)
        of = settings if candidate is None else candidate.settings
        self._first = self._loader.made(of, "" if candidate is None else candidate.revision, model, costs)
        self._versions.add(self._first)
        self._versions.serve(self._first.revision)
        self._switcher = None if candidate is None else self._make_switcher(hangup)
        self._intake = self._make_intake()
        self._capacity = self._make_capacity()
        self._vitals = Vitals(open_gpus(model.info))
        self._leaving, self._unfinished = False, 0

    def _make_edge(self) -> "EdgeConnections":
        from workers.serving.edge_connections import (
            EdgeConnections,  # its HTTP client takes a twentieth of a worker's imports
        )

        return EdgeConnections(self._settings, self._kafka.producer, self._history)

    def _make_worker(self) -> Worker:
        settings = self._settings
        return Worker(
            versions=self._versions,
            answers=self._answers,
            history=self._history,
            replies=settings.kafka.topics.replies,
            max_waiting=settings.worker.max_waiting,
            released=lambda job: self._intake.begin_again(job),  # noqa: PLW0108 - it is made after the worker
            tracer=Tracer(worker_id=self._worker_id),
            shadow=self._shadow,
            centre=None if self._edge is None else self._edge.centre,
        )

    def _make_shadow(self) -> Shadow:
        return Shadow(
            producer=self._kafka.producer,
            topics=self._settings.kafka.topics,
            encode=lambda job: self._versions[job.revision].encode,
        )

    def _make_intake(self) -> Intake:
        settings, kafka = self._settings, self._kafka
        return Intake(
            reader=kafka.requests,
            letters=kafka.letters if self._shadow is None else NoLetters(),
            topics=settings.kafka.topics,
            versions=self._versions,
            defaults=settings.request_defaults,
            offsets=kafka.offsets,
            commits=kafka.commits,
            worker=self._worker,
            answers=self._answers,
            cancelled=self._cancelled,
            answered_ms=ANSWERED_MS if self._shadow is None else 0,
            passing=self._kafka.passing_on(self._answers),
        )

    def _make_capacity(self) -> CapacityPublisher:
        settings = self._settings
        return CapacityPublisher(
            producer=self._kafka.producer,
            topics=settings.kafka.topics,
            worker_id=self._worker_id,
            buckets=settings.worker.buckets,
            lane=settings.worker.lane,
            pool=settings.worker.pool,
            revisions=lambda: self._versions.revisions,
            refused=lambda: {} if self._switcher is None else self._switcher.refused,
            costs=lambda: self._versions.serving.costs,
            outlook=lambda: self._versions.serving.engine_loop.outlook,
            changed=self._worker.outlook_changed,
            partitions=lambda: self._kafka.requests.partitions,
        )

    def _make_switcher(self, hangup: asyncio.Event) -> Switcher:
        settings, worker = self._settings, self._settings.worker
        means = Means(
            open=lambda revision: open_candidate(
                settings, revision, expected=self._kafka.versions.registry.find(revision or ""), verify=False
            ),
            rehearse=partial(rehearse, settings),
            load=self._loader.load_beside,
            close=self._loader.close,
            answering=lambda: {job.revision for job in self._answers.jobs},
            remember=partial(remember_last_served, worker),
        )
        return Switcher(
            lane=worker.lane,
            log=self._kafka.versions,
            versions=self._versions,
            means=means,
            hangup=hangup,
            kept_ms=worker.previous_s * 1_000,
            knows_memory=worker.engine in CPU_ENGINES,
        )

    def tell(self, readiness: Readiness) -> None:
        """Have `/ready` look at this process."""
        readiness.checks = {
            "kafka": lambda: None if self._leaving else self._kafka.missing(),
            "redis": self._history.missing,
            "hardware": self._vitals.missing,
            "engine": self._versions.missing,
            "copies": lambda: self._kafka.copies.weak,
            "version": lambda: None if self._switcher is None else self._switcher.missing(),
            "draining": lambda: "it takes nothing new" if self._leaving and not self._draining.done else None,
        }

    async def run(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as closing:  # one part that fails to close does not keep the others open
            closing.callback(lambda: get_logger().info("worker_stopped", unfinished=self._unfinished))
            closing.push_async_callback(self._kafka.close)
            closing.push_async_callback(self._close_versions)
            closing.push_async_callback(self._history.close)
            closing.push_async_callback(self._publisher.stop)
            if self._shadow is not None:
                closing.push_async_callback(self._shadow.stop)
            if self._edge is not None:
                closing.push_async_callback(self._edge.close)
            closing.push_async_callback(self._tasks.cancel)
            await self._serve(stop)

    async def _close_versions(self) -> None:
        for served in self._versions:
            with contained("task"):
                await asyncio.to_thread(served.close)

    async def _serve(self, stop: asyncio.Event) -> None:
        watchdog = Watchdog(self._versions.stuck, self._settings.step_limit_s)
        self._tasks.start(self._vitals.watch(), "vitals")
        self._tasks.start(self._startup(), "startup")
        self._tasks.start(watchdog.watch(), "watchdog")
        known = True
        try:
            await self._tasks.run_until(stop, self._draining.asked)
            if not stop.is_set():
                await self._leave()
                await self._tasks.run_until(stop)
        except Exception as error:
            known = isinstance(error, ReplylineError)
            raise
        finally:
            await self._drain(known=known)

    async def _startup(self) -> None:
        """Connect, as long as it takes; then serve."""
        kafka = self._kafka
        self._tasks.start(self._faq.watch(), "faq")
        self._tasks.start(self._history.await_first_answer(), "redis")
        self._tasks.start(kafka.watch.run(), "outages")
        await kafka.producer.start()
        await kafka.erasures.start(since_unix_ms=int(wire_unix_ms() - ERASED_FOR_S * 1_000))
        kafka.watch.start_logging_outages()
        await _await_topics(self._settings, kafka.producer)
        self._tasks.start(kafka.versions.watch(self._versions_changed), "versions")
        self._tasks.start(kafka.copies.watch(), "copies")
        await kafka.cancels.start()
        self._tasks.start(read_erasures(kafka.erasures, lambda erase, _: self._worker.erase(erase)), "erasures")
        cancels = read_cancels(
            kafka.cancels,
            partitions=lambda: kafka.requests.partitions,
            answered=lambda: self._answers.partitions,
            cancel=self._worker.cancel,
            cancelled=self._cancelled,
            adopt=self._answers.adopt,
        )
        self._tasks.start(cancels, "cancels")
        self._tasks.start(self._publisher.watch(), "replies")
        self._loader.start(self._first)
        await kafka.requests.start(kafka.commits.part)
        self._tasks.start(self._intake.run(), "intake")
        self._tasks.start(kafka.commits.run(), "commits")
        self._tasks.start(watch_lag(kafka.requests, self._settings.kafka.topics), "lag")
        self._tasks.start(self._capacity.run(), "capacity")
        if self._edge is not None:
            self._tasks.start(self._edge.sync.run(), "centre")
        if self._switcher is not None:
            self._tasks.start(self._switcher.run(), "versions switcher")
        settle_heap()
        get_logger().info(
            "worker_ready", buckets=self._settings.worker.buckets, engine=self._versions.serving.info.computed_by
        )

    def _versions_changed(self) -> None:
        registry, lane = self._kafka.versions.registry, self._settings.worker.lane
        state = registry.state
        self._intake.close_lane(closed=registry.closed(lane, wire_unix_ms()))
        if (wait_ms := state.effective_unix_ms - wire_unix_ms()) > 0:
            asyncio.get_running_loop().call_later(wait_ms / 1_000, self._versions_changed)
        if self._switcher is not None:
            self._switcher.changed()

    async def _leave(self) -> None:
        """Stop the intake and hand the partitions to other workers. What has been begun is finished here."""
        self._leaving = True
        await self._tasks.cancel(*_TAKE_NEW)
        await self._capacity.leave()
        await self._leave_group()
        self._tasks.start(self._finish(), "finish")

    async def _leave_group(self) -> None:
        """Commit, and leave the group: a question of these partitions does not wait for the drain."""
        kafka = self._kafka
        await kafka.commits.leave()
        await kafka.requests.leave()
        kafka.offsets.lose(list(kafka.offsets.positions))
        metrics.consumer_lag.clear()  # it is another's

    async def _finish(self) -> None:
        await self._intake.finish(None)
        await self._worker.drain(None)
        self._draining.done = True
        get_logger().info("worker_drained")

    async def _drain(self, *, known: bool) -> None:
        """Stop the intake, and finish what is in flight within the limit while the partitions go to other workers;
        commit those that are still here. `known`: it ends by no fault of its code, which any record in flight may have
        caused."""
        kafka, self._leaving = self._kafka, True
        hangs = self._versions.stuck() is not None
        await self._tasks.cancel(*_TAKE_NEW)
        finished = asyncio.Event()
        handing_over = asyncio.create_task(self._hand_over(finished)) if known and not hangs else None
        await self._capacity.leave()
        await self._intake.finish(0 if hangs else self._settings.kafka.request_timeout_ms / 1_000)
        self._unfinished = await self._worker.drain(_HUNG_DRAIN_S if hangs else self._settings.worker.drain_s)
        finished.set()
        if handing_over is not None:
            await handing_over
        await self._tasks.cancel("commits")
        # Without a broker what is not committed is answered again.
        await (kafka.commits.part(self._worker.suspects) if known else kafka.commits.commit())
        if hangs:
            await kafka.requests.stop()  # hands its partitions over

    async def _hand_over(self, finished: asyncio.Event) -> None:
        """Leave the group as soon as it has another member. A worker that is alone keeps its partitions until all is
        `finished`, and commits them: the next worker answers nothing again."""
        while self._kafka.requests.alone and not finished.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_ALONE_CHECK_INTERVAL_S):
                    await finished.wait()
        if not finished.is_set():
            await self._leave_group()


async def _await_topics(settings: Settings, producer: Producer) -> None:
    """Wait for the topics that fit together; those of a lane are made where they are missing."""
    lane = settings.worker.lane
    if lane != CHAMPION:
        await await_lane(settings.kafka, lane, kept_ms=kept_ms(settings.promise.max_deadline_ms))
    await await_layout(producer, settings.kafka.topics, lane)


_TAKE_NEW = ("startup", "versions switcher", "intake", "capacity", "lag")
_ALONE_CHECK_INTERVAL_S = 0.1
# Time for the broker to acknowledge what has ended; the rest is answered again.
_HUNG_DRAIN_S = 1.0
