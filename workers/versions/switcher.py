"""Follow the registry: load the version that this lane is to serve in addition to the one that serves, then switch.

    registry, SIGHUP → decision → look at it → plan memory → rehearse → load → serve
                                        ↓            ↓           ↓        ↓
                                      refused: the one that serves continues, and /ready says why

New requests go to the new version; those under way end where they began. The version before stays loaded for a
while, then its memory is given back. The worker keeps its place in the group, its offsets and its open answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.errors import ReplylineError
from shared.process.clock import monotonic_s, now_unix_ms, wire_unix_ms
from shared.process.tasks import Tasks
from shared.telemetry import metrics
from shared.telemetry.faults import caught, task_failed
from shared.telemetry.logs import get_logger
from shared.versions.log import VersionsLog
from shared.versions.state import State
from shared.wire.fields import Revision
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.reports import Refusal
from workers.serving.loaded_versions import LoadedVersions, ServedVersion
from workers.versions.candidate import Candidate
from workers.versions.decision import Abandon, Close, Load, Serve, Situation, next_action, wanted_beside

RETRY_MS: Final = 60_000.0
_LOOK_S: Final = 0.2
_ROOM_MS: Final = 1_000.0  # until a version that answers still may have ended

Step = Literal["store", "memory", "rehearsal", "load"]

log: Final = get_logger()


class Refused(ReplylineError):  # noqa: N818 - an expected outcome
    """A version was not loaded. `step` is the step that refused it."""

    def __init__(self, step: Step, reason: str) -> None:
        super().__init__(reason)
        self.step: Step = step


@dataclass(slots=True, kw_only=True)
class Means:
    """The functions by which versions are opened, tested, loaded and closed. They raise a `ReplylineError` if a version
    is at fault.

    Attributes:
        open: opens a version of the registry, or the model in `model.dir` for None.
        rehearse: returns why the version cannot be served; None if it can.
        load: returns the loaded version. It is computed while another version serves.
        close: frees a version.
        answering: returns the revisions that have open answers.
        remember: stores which version of the registry serves, for the next start.
    """

    open: Callable[[Revision | None], Candidate]
    rehearse: Callable[[Candidate], Awaitable[str | None]]
    load: Callable[[Candidate, ServedVersion], Awaitable[ServedVersion]]
    close: Callable[[ServedVersion], Awaitable[None]]
    answering: Callable[[], Collection[Revision]]
    remember: Callable[[Revision | None], None]


@dataclass(slots=True, kw_only=True)
class Switcher:
    """Switches a lane's versions as the registry says. `hangup` is set at a SIGHUP.

    A version stays loaded for `kept_ms` after another serves; the champion's previous one stays until its memory is
    needed. With `knows_memory` that is when a version to load does not fit; otherwise, as on a GPU, at each load.
    `refused` are versions that should be loaded and are not.
    """

    lane: Lane
    log: VersionsLog
    versions: LoadedVersions
    means: Means
    hangup: asyncio.Event
    kept_ms: float
    knows_memory: bool = True
    refused: dict[Revision, Refusal] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _tasks: Tasks = field(default_factory=lambda: Tasks(task_failed), init=False)
    _folder: Revision | None = field(default=None, init=False)
    _loading: Revision | None = field(default=None, init=False)
    _rehearsing: bool = field(default=False, init=False)
    _cramped: bool = field(default=False, init=False)
    _num_closing: int = field(default=0, init=False)
    _retry: dict[Revision, float] = field(default_factory=dict, init=False)
    _epoch: int = field(default=0, init=False)
    _left: dict[Revision, float] = field(default_factory=dict, init=False)

    # --- from the event loop

    def changed(self) -> None:
        """Note that the registry has changed."""
        self._wake.set()

    def missing(self) -> str | None:
        """Return which version this worker lacks, which one answers instead, and why, for `/ready`."""
        now = self._situation()
        if now.target == now.serving:
            return None
        refusal = self.refused.get(now.target)
        why = "it is being loaded" if refusal is None else refusal.reason
        return f"version {now.target} is not loaded, {now.serving or 'another'} answers: {why}"

    async def run(self) -> None:
        """Follow the registry until cancelled; an internal fault costs one switch."""
        try:
            while True:
                self._wake.clear()
                try:
                    if self.hangup.is_set():
                        await self._reread()
                    while await self._act():
                        pass
                except Exception as error:  # noqa: BLE001 - counted and logged; the serving version stays
                    caught("task", error)
                try:
                    async with asyncio.timeout(_LOOK_S):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            await self._tasks.cancel()

    # --- what is wanted, and what is so

    def _states(self) -> tuple[State, State]:
        """Return the state that holds now, and the latest; nothing is wanted before the registry is known."""
        registry = self.log.registry
        return (registry.state_at(wire_unix_ms()), registry.state) if self.log.known.is_set() else (State(), State())

    def _wanted(self, state: State) -> Revision | None:
        """Return the version that the lane's workers serve in that state; None if it names none. A canary that is
        closed serves the champion's, so that it drops what was rolled back."""
        closed = self.lane == "canary" and self.log.registry.closed(self.lane, wire_unix_ms())
        return state.revision(CHAMPION if closed else self.lane)

    def _situation(self) -> Situation:
        in_force, latest = self._states()
        serving = self.versions.serving.revision
        answering = self.means.answering()
        idle = {
            served.revision: self._left.get(served.revision, float("-inf"))
            for served in self.versions
            if served.revision not in {serving, *answering} and not served.num_preparing
        }
        return Situation(
            target=self._wanted(in_force) or self._folder or serving,
            beside=wanted_beside(in_force, latest, self.lane),
            serving=serving,
            loaded=frozenset(served.revision for served in self.versions),
            idle=idle,
            loading=self._loading,
            retry=self._retry,
            kept_ms=self.kept_ms,
            previous=in_force.aliases.get("previous") if self.lane == CHAMPION else None,
            cramped=self._cramped,
        )

    async def _reread(self) -> None:
        """Try again what was refused, and look at `model.dir` where the registry names no version for this lane."""
        self.hangup.clear()
        self._retry.clear()
        if self._wanted(self._states()[0]) is None:
            try:
                self._folder = (await asyncio.to_thread(self.means.open, None)).revision
            except ReplylineError as error:
                self._refuse("model.dir", Refused("store", str(error)))

    # --- what is done

    async def _act(self) -> bool:
        """Do what is to be done now; return whether there was anything."""
        in_force, latest = self._states()
        self.versions.epoch = in_force.epoch
        if self._wanted(in_force) is not None:
            self._folder = None
        if latest.epoch != self._epoch:  # a move may have repaired what was refused
            self._epoch = latest.epoch
            self._retry.clear()
        situation = self._situation()
        wanted = {situation.target, *situation.beside}
        self.refused = {revision: why for revision, why in self.refused.items() if revision in wanted}
        match next_action(situation, now_unix_ms()):
            case Serve(revision):
                self._serve(revision)
            case Load(revision):
                self._loading = revision
                self._tasks.start(self._load(revision), f"load {revision}")
            case Abandon(revision):
                if not self._rehearsing:  # its end is near
                    return False
                await self._tasks.cancel(f"load {revision}")
            case Close(revision):
                self._left.pop(revision, None)
                self._cramped = False  # one at a time: this may be enough
                self._num_closing += 1
                self._tasks.start(self._close(self.versions.remove(revision)), f"close {revision}")
            case None:
                return False
        return True

    def _serve(self, revision: Revision) -> None:
        before = self.versions.serving.revision
        self.versions.serve(revision)
        self._left.pop(revision, None)
        self._left[before] = now_unix_ms()
        metrics.switches.labels("done").inc()
        self.means.remember(None if revision == self._folder else revision)
        log.info("switch_done", version=revision, before=before, epoch=self.versions.epoch)

    async def _close(self, served: ServedVersion) -> None:
        try:
            await self.means.close(served)
        finally:
            self._num_closing -= 1
        log.info("version_closed", version=served.revision)

    async def _load(self, revision: Revision) -> None:
        begun_s = monotonic_s()
        try:
            candidate = await self._opened(revision)
            if candidate is None:
                return
            log.info("switch_started", version=revision, serving=self.versions.serving.revision)
            await self._rehearse(candidate)
            rehearsed_s = monotonic_s()
            served = await self._loaded(candidate)
            self.versions.add(served)
            self.refused.pop(revision, None)
            log.info(
                "version_loaded",
                version=revision,
                rehearsal_s=round(rehearsed_s - begun_s, 2),
                load_s=round(monotonic_s() - rehearsed_s, 2),
            )
        except Refused as refused:
            self._refuse(revision, refused)
        except Exception as error:  # noqa: BLE001 - counted and logged; the serving version stays
            caught("task", error)
            self._refuse(revision, Refused("load", f"a fault of our own: {type(error).__name__}"))
        finally:
            self._rehearsing, self._loading = False, None
            self._wake.set()

    async def _opened(self, revision: Revision) -> Candidate | None:
        """Return the version; None if it is to be tried again: `model.dir` has another one in the meantime, or
        one that is not wanted any more still has the memory. Raises `Refused`."""
        try:
            candidate = await asyncio.to_thread(self.means.open, None if revision == self._folder else revision)
        except ReplylineError as error:
            raise Refused("store", str(error)) from error
        if candidate.revision != revision:
            self._folder = candidate.revision
            return None
        plan = candidate.memory_plan()
        if plan.fits if plan is not None else self.knows_memory:
            return candidate
        now = self._situation()
        if self._num_closing or now.loaded - {now.serving, now.target, *now.beside}:
            self._cramped, self._retry[revision] = not self._num_closing, now_unix_ms() + _ROOM_MS
            return None
        if plan is None:
            return candidate
        raise Refused("memory", f"{plan.describe()}; {plan.remedy}")

    async def _rehearse(self, candidate: Candidate) -> None:
        self._rehearsing = True
        failure = await self.means.rehearse(candidate)
        self._rehearsing = False
        if failure is not None:
            raise Refused("rehearsal", failure)

    async def _loaded(self, candidate: Candidate) -> ServedVersion:
        try:
            return await self.means.load(candidate, self.versions.serving)
        except ReplylineError as error:
            raise Refused("load", str(error)) from error

    def _refuse(self, revision: str, refused: Refused) -> None:
        self._retry[revision] = now_unix_ms() + RETRY_MS
        self.refused[revision] = Refusal(epoch=self._epoch, reason=str(refused))
        metrics.switches.labels(refused.step).inc()
        log.error(
            "switch_refused",
            version=revision,
            step=refused.step,
            reason=str(refused),
            serving=self.versions.serving.revision,
        )
