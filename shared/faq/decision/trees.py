"""Evaluate boosted trees from a small file of numbers, without a machine-learning library. Pure.

Each tree is complete, of one depth for all: node i has the children 2i + 1 and 2i + 2, and compares a measure with a
threshold. The sum of the leaves' values is a logit (J. Friedman, "Greedy Function Approximation", 2001).
"""

from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray


class Forest(msgspec.Struct, frozen=True, kw_only=True):
    """A forest in the form of its file.

    Attributes:
        names: The measures, in the order of their numbers.
        base: The logit that the leaves are added to.
        features: Of each tree the number of the measure at each node.
        thresholds: Of each tree the threshold at each node.
        leaves: Of each tree the value of each leaf.
    """

    names: tuple[str, ...]
    base: float
    features: tuple[tuple[int, ...], ...]
    thresholds: tuple[tuple[float, ...], ...]
    leaves: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Trees:
    """A forest as arrays: `features` and `thresholds` [trees, nodes], `leaves` [trees, leaves]."""

    names: tuple[str, ...]
    base: float
    features: NDArray[np.int64]
    thresholds: NDArray[np.float64]
    leaves: NDArray[np.float64]

    @classmethod
    def of(cls, forest: Forest) -> Self:
        """Return the trees of a forest."""
        return cls(
            forest.names,
            forest.base,
            np.array(forest.features),
            np.array(forest.thresholds),
            np.array(forest.leaves),
        )

    def logit(self, row: NDArray[np.float64]) -> float:
        """Return the logit of a row of measures, in the order of `names`."""
        trees = np.arange(len(self.leaves))
        node = np.zeros(len(self.leaves), dtype=np.int64)
        nodes = self.features.shape[1]
        for _ in range(nodes.bit_length()):
            node = 2 * node + 1 + (row[self.features[trees, node]] > self.thresholds[trees, node])
        return self.base + float(self.leaves[trees, node - nodes].sum())

    def logits(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logit of each row."""
        return np.array([self.logit(row) for row in rows])
