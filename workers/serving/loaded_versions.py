"""The model versions in this worker's memory: the one that answers new questions, and older ones that finish theirs.
Each has its own engine, prompt builder and KV cache."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from shared.telemetry import metrics
from shared.telemetry.faults import contain_each
from shared.wire.fields import Revision
from shared.wire.messages import ReplyDone
from shared.wire.requests import Order
from shared.wire.session_key import SessionKey
from workers.engine import ModelInfo
from workers.engine.load_model import LoadedModel
from workers.engine.upstream.model import UpstreamModel
from workers.kv.cache import KvCache
from workers.prompt.conversation import Prompts
from workers.request.job import Job
from workers.schedule.costs import CostModel
from workers.serving.engine_loop import EngineLoop

if TYPE_CHECKING:
    from workers.serving.upstream_loop import UpstreamLoop

Prepare = Callable[[Order, float], Awaitable[Job | ReplyDone]]


@dataclass(slots=True, kw_only=True, eq=False)
class ServedVersion:
    """A loaded model version.

    Attributes:
        revision: its name.
        costs: the costs by which `engine_loop` plans.
        prepare: turns a request into a job for `engine_loop`.
        encode: encodes a text as its tokens.
        num_preparing: requests that are being prepared.
    """

    revision: str
    model: LoadedModel | UpstreamModel
    costs: CostModel
    engine_loop: "EngineLoop | UpstreamLoop"
    prompts: Prompts
    kv: KvCache | None
    prepare: Prepare
    encode: Callable[[str], Sequence[int]]
    num_preparing: int = field(default=0, init=False)

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    def start(self) -> None:
        """Start the search for stored KV. Call it before the first request is prepared."""
        if self.kv is not None:
            self.kv.start()

    def erase(self, session: SessionKey, generation: int) -> None:
        """Forget a conversation's earlier generations."""
        contain_each(
            "record",
            lambda: self.engine_loop.forget(session),
            lambda: None if self.kv is None else self.kv.erase(session, generation),
            lambda: self.prompts.forget(session),
        )

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Keep the version loaded while a request is prepared."""
        self.num_preparing += 1
        try:
            yield
        finally:
            self.num_preparing -= 1

    def close(self) -> None:
        """Write the KV that should be kept, within a limit, and free the engine's memory unless it hangs."""
        if self.kv is not None:
            self.kv.close()
        hangs = isinstance(self.engine_loop, EngineLoop) and self.engine_loop.computes
        if isinstance(self.model, LoadedModel) and not hangs:
            self.model.engine.close()


class LoadedVersions:
    """The loaded versions by revision, owned by the event loop. One of them serves after the first `serve`.

    `epoch` is the registry's state that selected it.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, ServedVersion] = {}
        self._serving = ""
        self.epoch = 0

    def __iter__(self) -> Iterator[ServedVersion]:
        return iter(list(self._loaded.values()))

    def __getitem__(self, revision: str) -> ServedVersion:
        return self._loaded[revision]

    def __contains__(self, served: ServedVersion) -> bool:
        return self._loaded.get(served.revision) is served

    @property
    def serving(self) -> ServedVersion:
        """Return the serving version."""
        return self._loaded[self._serving]

    @property
    def revisions(self) -> tuple[Revision, ...]:
        """Return the versions that have a name, the serving one first."""
        return tuple(name for name in (self._serving, *(self._loaded.keys() - {self._serving})) if name)

    def for_request(self, revision: Revision | None, epoch: int | None) -> ServedVersion | None:
        """Return the version that a request names, or the serving one if it names none.

        Returns:
            None if the named version is not loaded, or a later state of the registry than the request's has removed it.
        """
        if revision is None or revision == self._serving:
            return self.serving
        return self._loaded.get(revision) if (epoch or 0) >= self.epoch else None

    def add(self, served: ServedVersion) -> None:
        """Add a version that does not serve yet."""
        self._loaded[served.revision] = served
        metrics.loaded_versions.labels(served.revision).set(0)

    def serve(self, revision: str) -> None:
        """Serve all later requests with this version."""
        for name in self._loaded:
            metrics.loaded_versions.labels(name).set(name == revision)
        self._serving = revision
        info = self.serving.info
        metrics.load.labels("slots").set(info.num_slots)
        metrics.model_info.clear()
        metrics.model_info.labels(info.model, revision, info.computed_by, version("replyline")).set(1)

    def remove(self, revision: str) -> ServedVersion:
        """Remove and return a version that does not serve."""
        metrics.loaded_versions.remove(revision)
        return self._loaded.pop(revision)

    def stuck(self) -> str | None:
        """Return the error message of an engine whose step does not end; None while steps end."""
        return next((why for served in self if (why := served.engine_loop.stuck()) is not None), None)

    def missing(self) -> str | None:
        """Return why an engine cannot be used, for `/ready`."""
        return next((why for served in self if (why := served.engine_loop.missing()) is not None), None)
