"""Fit boosted trees to rows of measures: gradient boosting of the logistic loss over binned measures. Pure.

Second-order steps and level-wise growth as in T. Chen and C. Guestrin, "XGBoost" (2016), in numpy: some thousand rows
of thirty measures take seconds, and no library of models is needed to make the file again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.faq.decision.trees import Forest

Array = NDArray[np.float64]
_LEAST_GAIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """How trees are fitted.

    Attributes:
        trees: How many.
        depth: Of each.
        rate: The share of each step that is taken.
        bins: Into how many a measure is cut.
        least: The least curvature of the rows in a leaf.
        l2: The penalty on a leaf's value.
        share: The share of the rows, and of the measures, that each tree sees.
        seed: Of those shares.
    """

    trees: int = 160
    depth: int = 4
    rate: float = 0.06
    bins: int = 32
    least: float = 2.0
    l2: float = 4.0
    share: float = 0.6
    seed: int = 0


def fit_trees(rows: Array, labels: Array, weights: Array, names: Sequence[str], how: Boosting = Boosting()) -> Forest:
    """Return trees for rows [n, measures] with labels 0 or 1."""
    edges = [_edges(rows[:, at], how.bins) for at in range(rows.shape[1])]
    binned = np.stack([np.searchsorted(edge, rows[:, at], side="left") for at, edge in enumerate(edges)], axis=1)
    draw = np.random.default_rng(how.seed)
    mean = float(np.average(labels, weights=weights))
    base = float(np.log(mean / (1 - mean)))
    logits = np.full(len(rows), base)
    features, thresholds, leaves = [], [], []
    for _ in range(how.trees):
        share = 1.0 / (1.0 + np.exp(-logits))
        sampled = weights * (draw.random(len(rows)) < how.share)
        seen = draw.random(rows.shape[1]) < how.share
        tree = _Tree(binned, edges, np.asarray(seen), how)
        places = tree.grow(sampled * (share - labels), sampled * share * (1 - share))
        logits += tree.leaves[places]
        features.append(tuple(tree.features.tolist()))
        thresholds.append(tuple(round(value, 5) for value in tree.thresholds.tolist()))
        leaves.append(tuple(round(value, 5) for value in tree.leaves.tolist()))
    return Forest(
        names=tuple(names),
        base=base,
        features=tuple(features),
        thresholds=tuple(thresholds),
        leaves=tuple(leaves),
    )


def _edges(column: Array, bins: int) -> Array:
    """Return the thresholds between bins: a value is above those that are less than it."""
    values = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1]))
    return np.round(values, 5)


class _Tree:
    """One tree, grown level by level: of each node the split that gains most."""

    def __init__(
        self, binned: NDArray[np.int64], edges: Sequence[Array], seen: NDArray[np.bool_], how: Boosting
    ) -> None:
        nodes = 2**how.depth - 1
        self._binned, self._edges, self._seen, self._how = binned, edges, seen, how
        self.features = np.zeros(nodes, dtype=np.int64)
        self.thresholds = np.full(nodes, 1e9)
        self._cuts = np.full(nodes, how.bins)
        self.leaves = np.zeros(nodes + 1)

    def grow(self, gradients: Array, curvatures: Array) -> NDArray[np.int64]:
        """Grow the tree, and return the leaf of each row. A histogram is [nodes, measures, bins]."""
        how = self._how
        place = np.zeros(len(gradients), dtype=np.int64)
        for level in range(how.depth):
            first = 2**level - 1
            sums = [self._histogram(place, 2**level, values) for values in (gradients, curvatures)]
            for node in range(2**level):
                self._split(first + node, sums[0][node], sums[1][node])
            nodes = first + place
            bins = self._binned[np.arange(len(place)), self.features[nodes]]
            place = 2 * place + (bins > self._cuts[nodes])
        slope = np.bincount(place, gradients, 2**how.depth)
        curve = np.bincount(place, curvatures, 2**how.depth)
        self.leaves = -how.rate * slope / (curve + how.l2)
        return place

    def _histogram(self, place: NDArray[np.int64], nodes: int, values: Array) -> Array:
        measures, bins = self._binned.shape[1], self._how.bins
        cells = (place[:, None] * measures + np.arange(measures)) * bins + self._binned
        flat = np.bincount(cells.ravel(), np.repeat(values, measures), nodes * measures * bins)
        return np.asarray(flat.reshape(nodes, measures, bins), dtype=np.float64)

    def _split(self, node: int, slopes: Array, curves: Array) -> None:
        how = self._how
        left_slope, left_curve = slopes.cumsum(axis=1)[:, :-1], curves.cumsum(axis=1)[:, :-1]
        slope, curve = slopes.sum(axis=1, keepdims=True), curves.sum(axis=1, keepdims=True)
        right_slope, right_curve = slope - left_slope, curve - left_curve
        gain = left_slope**2 / (left_curve + how.l2) + right_slope**2 / (right_curve + how.l2)
        gain = gain - slope**2 / (curve + how.l2)
        allowed = np.minimum(left_curve, right_curve) >= how.least
        gain = np.where(allowed & self._seen[:, None], gain, 0.0)
        measure, cut = divmod(int(gain.argmax()), gain.shape[1])
        if gain[measure, cut] <= _LEAST_GAIN or cut >= len(self._edges[measure]):
            return
        self.features[node], self.thresholds[node] = measure, self._edges[measure][cut]
        self._cuts[node] = cut
