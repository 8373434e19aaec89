"""The model versions that a worker has loaded."""

from collections.abc import Iterator

from workers.serving.served import Served


class LoadedVersions:
    """By revision; the event loop's own. One of them serves, from `serve` on."""

    def __init__(self) -> None:
        self._loaded: dict[str, Served] = {}
        self._serving = ""

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._loaded.values()))

    def __getitem__(self, revision: str) -> Served:
        return self._loaded[revision]

    @property
    def serving(self) -> Served:
        """Return the version that serves."""
        return self._loaded[self._serving]

    def serve(self, served: Served) -> None:
        """Have a version serve the requests that come from now on."""
        self._loaded[served.revision] = served
        self._serving = served.revision

    def stuck(self) -> str | None:
        """Return the error message of an engine whose step does not end; None while steps end."""
        return next((why for served in self if (why := served.engine_loop.stuck()) is not None), None)

    def missing(self) -> str | None:
        """Return why an engine cannot be used, for `/ready`."""
        return next((why for served in self if (why := served.engine_loop.missing()) is not None), None)
