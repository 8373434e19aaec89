"""Choose and load the model version with which a worker starts: the one that the registry names, or the one that this
worker served last if Kafka cannot be reached."""

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from shared.errors import BrokerUnavailable, ModelError, SettingsError
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.settings.worker import WorkerSettings
from shared.telemetry.logs import get_logger
from shared.versions.log import VersionsLog
from shared.versions.state import State
from shared.wire.fields import Revision
from workers.engine.load_model import LoadedModel, load_model
from workers.serving.calibration import save
from workers.versions.candidate import Candidate, open_candidate

_WAIT_S: Final = 3.0

log: Final = get_logger()


async def choices(settings: Settings, client_id: str) -> tuple[Revision | None, ...]:
    """Return what to begin with, the best first: the version that the registry names for this lane; without Kafka, or
    where that one cannot be loaded, the one that was served last; None: the model at `model.dir`."""
    state = await _registry_state(settings, client_id)
    last = read_last_served(settings.worker)
    if state is None:
        action = f"load {settings.model.dir}" if last is None else f"load version {last}, which served last"
        log.warning("registry_unknown", action=action)
        return (None,) if last is None else (last, None)
    wanted = state.revision(settings.worker.lane)
    return (None,) if wanted is None else tuple(dict.fromkeys((wanted, *([last] if last else []), None)))


def load_first(settings: Settings, revisions: tuple[Revision | None, ...]) -> tuple[Candidate, LoadedModel]:
    """Load the first version that can be loaded. If none can, raise the last one's error: `ModelError` or
    `SettingsError`."""
    *others, last = revisions
    for revision in others:
        try:
            return _load(settings, revision)
        except (ModelError, SettingsError) as error:
            log.error("version_refused", version=revision, reason=str(error))  # noqa: TRY400 - the line says all
    return _load(settings, last)


def _load(settings: Settings, revision: Revision | None) -> tuple[Candidate, LoadedModel]:
    candidate = open_candidate(settings, revision, verify=True)
    return candidate, load_model(candidate.settings, verify=False)


async def _registry_state(settings: Settings, client_id: str) -> State | None:
    """Return the registry's state; None if Kafka does not answer soon."""
    registry = VersionsLog.of(settings.kafka, client_id=client_id)
    try:
        async with asyncio.timeout(_WAIT_S):
            await registry.start()
    except (TimeoutError, BrokerUnavailable):
        return None
    finally:
        await registry.stop()
    return registry.registry.state_at(wire_unix_ms())


class _LastServed(msgspec.Struct):
    revision: Revision | None


def read_last_served(worker: WorkerSettings) -> Revision | None:
    """Return the version; None if none of the registry's was served, or the file cannot be read."""
    try:
        return msgspec.json.decode(_path(worker).read_bytes(), type=_LastServed).revision
    except (OSError, msgspec.MsgspecError):
        return None


def remember_last_served(worker: WorkerSettings, revision: Revision | None) -> None:
    """Note which version serves; None: the model at `model.dir`."""
    if revision == read_last_served(worker):
        return
    try:
        save(_path(worker), _LastServed(revision))
    except OSError as error:
        get_logger().warning("last_version_not_noted", path=str(_path(worker)), cause=error.strerror)


def _path(worker: WorkerSettings) -> Path:
    return worker.cache_dir / f"served-{worker.lane}.json"
