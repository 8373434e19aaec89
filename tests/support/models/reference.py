"""A decoder's logits by numpy, in float32. tests/golden/families.json holds it to transformers."""

from collections.abc import Sequence

import numpy as np

from ops.model.numerics.forward import NumpyDialect, PlainProducts, Products
from workers.graph.decoder import Decoder
from workers.graph.sources.checkpoint import Checkpoint

Centre = tuple[np.ndarray, np.ndarray]


class _Reference(NumpyDialect):
    """Keeps the logits; `centre` is added before and after the last product."""

    __slots__ = ("centre", "found")
    centre: Centre | None
    found: np.ndarray

    def logits(self, head: np.ndarray | None, normed: str) -> None:
        table, value = self._table if head is None else head, self._values[normed]
        away, bias = self.centre or (np.zeros(value.shape[1], np.float32), np.zeros(len(table), np.float32))
        self.found = self.products.multiply("logits", value + away, table) + bias[: len(table)]


def reference_logits(
    checkpoint: Checkpoint,
    token_ids: Sequence[int],
    products: Products | None = None,
    centre: Centre | None = None,
) -> np.ndarray:
    """Return the logits `[tokens, vocabulary]` after each token. `centre` is the vector that `model.native` stores
    along with its head."""
    dialect = _Reference(checkpoint.architecture, [token_ids], products or PlainProducts())
    dialect.centre = centre
    Decoder(checkpoint, dialect).build(lambda _fraction: None)
    return dialect.found
