"""The model versions that a worker has loaded."""

from collections.abc import Iterator
from importlib.metadata import version

from shared.telemetry import metrics
from shared.wire.fields import Revision
from workers.serving.served import Served


class LoadedVersions:
    """The loaded versions by revision; owned by the event loop. One of them serves, from the first `serve` on. `epoch`
    is that of the registry's state by which it does."""

    def __init__(self) -> None:
        self._loaded: dict[str, Served] = {}
        self._serving = ""
        self.epoch = 0

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._loaded.values()))

    def __getitem__(self, revision: str) -> Served:
        return self._loaded[revision]

    def __contains__(self, served: Served) -> bool:
        return self._loaded.get(served.revision) is served

    @property
    def serving(self) -> Served:
        """Return the version that serves."""
        return self._loaded[self._serving]

    @property
    def revisions(self) -> tuple[Revision, ...]:
        """Return those that have a name, the one that serves first."""
        return tuple(name for name in (self._serving, *(self._loaded.keys() - {self._serving})) if name)

    def of(self, revision: Revision | None, epoch: int | None) -> Served | None:
        """Return the version that a request names, or the one that serves where it names none. Return None where the
        named one is not loaded, or was taken off by a later state of the registry than the request's."""
        if revision is None or revision == self._serving:
            return self.serving
        return self._loaded.get(revision) if (epoch or 0) >= self.epoch else None

    def add(self, served: Served) -> None:
        """Keep a version in addition to the one that serves."""
        self._loaded[served.revision] = served
        metrics.loaded_versions.labels(served.revision).set(0)

    def serve(self, revision: str) -> None:
        """Serve all later requests by a version."""
        for name in self._loaded:
            metrics.loaded_versions.labels(name).set(name == revision)
        self._serving = revision
        info = self.serving.info
        metrics.load.labels("slots").set(info.num_slots)
        metrics.model_info.clear()
        metrics.model_info.labels(info.model, revision, info.computed_by, version("replyline")).set(1)

    def remove(self, revision: str) -> Served:
        """Return a version that does not serve, and know it no more."""
        metrics.loaded_versions.remove(revision)
        return self._loaded.pop(revision)

    def stuck(self) -> str | None:
        """Return the error message of an engine whose step does not end; None while steps end."""
        return next((why for served in self if (why := served.engine_loop.stuck()) is not None), None)

    def missing(self) -> str | None:
        """Return why an engine cannot be used, for `/ready`."""
        return next((why for served in self if (why := served.engine_loop.missing()) is not None), None)
