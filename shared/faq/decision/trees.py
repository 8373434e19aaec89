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
    """A forest as arrays: `features` and `thresholds` [trees x nodes], `leaves` [trees, leaves]."""

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
            np.array(forest.features).ravel(),
            np.array(forest.thresholds).ravel(),
            np.array(forest.leaves),
        )

    def logits(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logit of each row of measures `[rows, names]`, in the order of `names`."""
        nodes = self.leaves.shape[1] - 1
        right = (rows[:, self.features] > self.thresholds).ravel()
        first = nodes * np.arange(len(rows) * len(self.leaves)).reshape(len(rows), -1)
        node = np.zeros_like(first)
        for _ in range(nodes.bit_length()):
            node = 2 * node + 1 + right[first + node]
        return np.asarray(self.base + self.leaves[np.arange(len(self.leaves)), node - nodes].sum(axis=1))
