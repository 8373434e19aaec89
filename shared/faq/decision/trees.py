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
        num_trees, num_leaves = self.leaves.shape
        nodes, tree = num_leaves - 1, np.arange(len(rows) * num_trees)
        right = (rows.take(self.features, axis=1) > self.thresholds).ravel()
        node = np.zeros_like(tree)
        for _ in range(nodes.bit_length()):
            node = 2 * node + 1 + right.take(nodes * tree + node)
        found = self.leaves.ravel().take(num_leaves * (tree % num_trees) + node - nodes)
        return np.asarray(self.base + found.reshape(len(rows), num_trees).sum(axis=1))
