"""Keep the version that this machine's workers of a lane served last, for a start without Kafka."""

from pathlib import Path

import msgspec

from shared.settings.worker import WorkerSettings
from shared.telemetry.logs import get_logger
from shared.wire.fields import Revision
from workers.serving.calibration import save


class _LastServed(msgspec.Struct):
    revision: Revision | None


def read_last_served(worker: WorkerSettings) -> Revision | None:
    """Return the version; None where none of the registry's was served, or nobody can tell."""
    try:
        return msgspec.json.decode(_path(worker).read_bytes(), type=_LastServed).revision
    except (OSError, msgspec.MsgspecError):
        return None


def remember_last_served(worker: WorkerSettings, revision: Revision | None) -> None:
    """Note which version serves; None: what stands at `model.dir` does."""
    if revision == read_last_served(worker):
        return
    try:
        save(_path(worker), _LastServed(revision))
    except OSError as error:
        get_logger().warning("last_version_not_noted", path=str(_path(worker)), cause=error.strerror)


def _path(worker: WorkerSettings) -> Path:
    return worker.cache_dir / f"served-{worker.lane}.json"
