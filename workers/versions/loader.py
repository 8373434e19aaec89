"""Load model versions into a worker process, and close them. The first is loaded before the worker serves, a later one
while an earlier one continues to answer."""

import asyncio
import ctypes
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from shared.conversation.history import History
from shared.faq.live import LiveFaq
from shared.model.folder import GRAPH_DATA, NATIVE
from shared.process.tasks import Tasks
from shared.settings import Settings
from workers.building import make_served
from workers.engine.greedy import answer_greedily
from workers.engine.load_model import LoadedModel, load_model
from workers.engine.upstream.model import UpstreamModel
from workers.schedule.costs import CostModel
from workers.serving.loaded_versions import ServedVersion
from workers.serving.worker import Worker
from workers.versions.candidate import Candidate

_WARM_UP: Final = [1] * 16


@dataclass(slots=True, kw_only=True)
class VersionLoader:
    """Loads model versions into this worker process, starts a task that computes each one's answers, and closes them.

    Attributes:
        faq: shared by all versions
        history: of the conversations; shared by all versions
        worker: publishes the answers
        tasks: the process's background tasks, among them one per version. A failure of any of them ends the process;
            a version's task fails only if its engine keeps failing after restarts.
    """

    faq: LiveFaq
    history: History
    worker: Worker
    tasks: Tasks

    def made(
        self, settings: Settings, revision: str, model: LoadedModel | UpstreamModel, costs: CostModel
    ) -> ServedVersion:
        """Return a loaded model as a version that is to serve."""
        return make_served(
            settings,
            revision,
            model,
            costs,
            faq=self.faq,
            history=self.history,
            publish=self.worker.publish_soon,
            changed=self.worker.note_outlook,
        )

    def start(self, served: ServedVersion) -> None:
        """Start the task that computes the requests given to this version."""
        served.start()
        self.tasks.start(self.worker.compute(served), _task_of(served))

    async def load_beside(self, candidate: Candidate, serving: ServedVersion) -> ServedVersion:
        """Load another version while `serving` continues to answer, and start its task.

        The version was tested in a separate process before (`rehearsal.py`). Its files may have changed since then, so
        their hashes are checked again. Its speed cannot be measured while `serving` uses the machine, so its predicted
        call times start as those of `serving`, scaled by the size of the weights, and are corrected by its own steps.

        Raises:
            ModelError, SettingsError, EngineError: the version cannot be loaded.
        """
        beside = serving.model if isinstance(serving.model, LoadedModel) else None
        model = await asyncio.to_thread(load_model, candidate.settings, beside=beside)
        try:
            await asyncio.to_thread(answer_greedily, model.engine, [_WARM_UP], 2)
            ratio = 1.0 if beside is None else _weights_bytes(model) / _weights_bytes(beside)
            served = self.made(candidate.settings, candidate.revision, model, serving.costs.scaled(ratio))
        except Exception:
            model.engine.close()
            raise
        self.start(served)
        return served

    async def close(self, served: ServedVersion) -> None:
        """Close a version without open answers, and give its memory back to the system."""
        await self.tasks.cancel(_task_of(served))
        await asyncio.to_thread(served.close)
        with suppress(OSError, AttributeError):  # another C library than glibc gives it back by itself
            await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)


def _task_of(served: ServedVersion) -> str:
    return f"engine {served.revision}"


def _weights_bytes(model: LoadedModel) -> int:
    files = () if model.manifest is None else model.manifest.files
    weights = NATIVE if model.info.name == "native" else GRAPH_DATA
    return sum(entry.size for entry in files if entry.name == weights) or 1
