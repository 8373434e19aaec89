"""The router of a mixture of experts, in standard operators and in numpy. Scores are float32 in every precision."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.model.folder import Experts
from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.sources.checkpoint import Float32Array


@dataclass(frozen=True, slots=True)
class Mixture:
    """A layer's experts. `router` is `[count, hidden]`; `read` returns the matrix `gate_proj`, `up_proj` or `down_proj`
    of an expert, which are read one at a time."""

    experts: Experts
    router: Float32Array
    read: Callable[[int, str], Float32Array]

    def each(self, part: str) -> Iterator[Float32Array]:
        """Yield a matrix of every expert, in order."""
        return (self.read(number, part) for number in range(self.experts.count))


def chosen_experts(scores: Float32Array, experts: Experts) -> tuple[NDArray[np.int64], Float32Array]:
    """Return the numbers and weights `[rows, chosen]` of the experts that rows of `scores` `[rows, count]` choose."""
    numbers = np.argsort(-scores, axis=1, kind="stable")[:, : experts.chosen]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = np.take_along_axis(powers, numbers, axis=1)
    over = weights if experts.normalized else powers
    return numbers, weights / over.sum(axis=1, keepdims=True)


def add_scores(graph: GraphBuilder, name: str, matrix: Float32Array, value: str) -> str:
    """Return `value` `[…, hidden]` times a matrix `[out, hidden]`, in float32: `[…, out]`.

    Every row is a separate product, so its sums have the same order alone and among others.
    """
    graph.weight(f"{name}.weight", matrix)
    last = graph.constant("last_axis", np.array([-1], np.int64))
    column = graph.node("Unsqueeze", [value, last], [f"{name}.column"])
    graph.node("MatMul", [f"{name}.weight", column], [f"{name}.product"])
    return graph.node("Squeeze", [f"{name}.product", last], [f"{name}.scores"])


def add_choice(graph: GraphBuilder, name: str, scores: str, experts: Experts) -> tuple[str, str]:
    """Return the numbers of the chosen experts and their weights, both `[rows, chosen]`. Of equal scores `TopK` takes
    the lower number."""
    by_expert = graph.constant("by_expert", np.array([-1, experts.count], np.int64))
    rows = graph.node("Reshape", [scores, by_expert], [f"{name}.rows"])
    count = graph.constant("chosen_experts", np.array([experts.chosen], np.int64))
    graph.node("TopK", [rows, count], [f"{name}.highest", f"{name}.numbers"], axis=-1)
    if experts.normalized:
        chosen = graph.node("Softmax", [f"{name}.highest"], [f"{name}.chosen"], axis=-1)
    else:
        every = graph.node("Softmax", [rows], [f"{name}.softmax"], axis=-1)
        chosen = graph.node("GatherElements", [every, f"{name}.numbers"], [f"{name}.chosen"], axis=-1)
    return f"{name}.numbers", chosen


def add_one_hot(graph: GraphBuilder, numbers: str, experts: Experts) -> str:
    """Return 1 in the column of each number of a flat list, and 0 elsewhere: `[numbers, count]`."""
    depth = graph.constant("count_experts", np.array([experts.count], np.int64))
    values = graph.constant("off_on", np.array([0, 1], np.float32))
    return graph.node("OneHot", [numbers, depth, values], [f"{numbers}.one_hot"], axis=-1)


def add_columns(graph: GraphBuilder, numbers: str, shares: str, experts: Experts) -> str:
    """Return the weight of every expert for every row, 0 if the row did not choose it: `[count, rows, 1]`."""
    node, last = graph.node, graph.constant("last_axis", np.array([-1], np.int64))
    each = [add_one_hot(graph, numbers, experts), node("Unsqueeze", [shares, last], [f"{shares}.each"])]
    spread = node("Mul", each, [f"{shares}.spread"])
    ranks = graph.constant("rank_axis", np.array([1], np.int64))
    weights = node("ReduceSum", [spread, ranks], [f"{shares}.weights"], keepdims=0)
    by_expert = node("Transpose", [weights], [f"{shares}.by_expert"], perm=[1, 0])
    return node("Unsqueeze", [by_expert, last], [f"{shares}.columns"])


def add_shared(graph: GraphBuilder, name: str, score: str, shared: str, branch: str) -> str:
    """Return `branch` plus `shared`, the output of the expert that every token passes, times the sigmoid of `score`."""
    sigmoid = graph.node("Sigmoid", [score], [f"{name}.share"])
    weighted = graph.node("Mul", [shared, sigmoid], [f"{name}.weighted"])
    return graph.node("Add", [branch, weighted], [f"{name}.sum"])
