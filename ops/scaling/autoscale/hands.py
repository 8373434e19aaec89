"""Carry a decision out: by the reader of the metric, or by this process."""

from collections.abc import Mapping
from typing import Protocol

from shared.wire.reports import WorkerReport


class Hands(Protocol):
    """`live` are the newest reports of the pool's workers, by their ids."""

    def loading(self, live: Mapping[str, WorkerReport]) -> int | None:
        """Return how many workers were started and do not report yet; None if it is not known."""

    async def size(self, wanted: int, live: Mapping[str, WorkerReport]) -> None:
        """Bring the pool nearer to its size; called each second."""

    async def close(self) -> None:
        """End what was begun."""


class Elsewhere:
    """KEDA, an HPA or a person reads what is wanted."""

    def loading(self, live: Mapping[str, WorkerReport]) -> None:
        """Return None: which workers are still loading is not known."""

    async def size(self, wanted: int, live: Mapping[str, WorkerReport]) -> None:
        """Leave it to them."""

    async def close(self) -> None:
        """Do nothing: nothing was begun."""
