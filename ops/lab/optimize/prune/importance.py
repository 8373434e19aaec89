"""Measure how much each part of a decoder matters: a group's and a channel's share of what its module adds to the
residual stream, and the divergence (KL) of the predicted tokens if parts are left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ops.lab.optimize.lessons import Lesson
from ops.model.numerics.forward import PlainProducts, hidden_states, observe
from shared.model.folder import Architecture
from workers.graph.sources.checkpoint import Checkpoint, Float32Array

# Number of rows of logits computed together: 49,152 words of 256 tokens are 50 MB.
_ROWS = 256


@dataclass(frozen=True, slots=True)
class Shares:
    """By layer, each KV group's `[num_kv_heads]` and MLP channel's `[intermediate]` mean share of the squares that its
    module adds to the residual stream. Cross terms are ignored."""

    groups: list[Float32Array]
    channels: list[Float32Array]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Products with the checkpoint's own weights, which add up the shares of the two matrices that write to the
    residual stream."""

    architecture: Architecture
    shares: dict[str, Float32Array] = field(default_factory=dict)

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        if name.endswith("mlp.down_proj"):
            self.shares[name] = _mean_share(np.square(value) * np.square(matrix).sum(axis=0))
        elif name.endswith("self_attn.o_proj"):
            a = self.architecture
            parts = [
                np.square(value[:, span] @ matrix[:, span].T).sum(axis=1, keepdims=True)
                for span in np.split(np.arange(a.num_heads * a.head_dim), a.num_kv_heads)
            ]
            self.shares[name] = _mean_share(np.concatenate(parts, axis=1))
        return value @ matrix.T


def _mean_share(squares: Float32Array) -> Float32Array:
    """Return the mean of each part's share `[parts]` of `[tokens, parts]`: the first token of a text may be a thousand
    times larger than all others."""
    shares: Float32Array = squares / (squares.sum(axis=1, keepdims=True) + np.finfo(np.float32).tiny)
    mean: Float32Array = shares.mean(axis=0)
    return mean


def shares_of(checkpoint: Checkpoint, lessons: Sequence[Lesson]) -> Shares:
    """Return the shares on these texts."""
    inputs = _Inputs(checkpoint.architecture)
    observe(checkpoint, [lesson.ids for lesson in lessons], inputs, lambda _fraction: None)
    layers = range(checkpoint.architecture.num_layers)
    return Shares(
        groups=[inputs.shares[f"layers.{layer}.self_attn.o_proj"] for layer in layers],
        channels=[inputs.shares[f"layers.{layer}.mlp.down_proj"] for layer in layers],
    )


@dataclass(frozen=True, slots=True)
class Predicted:
    """The natural logarithms of the probabilities `[positions, vocabulary]` of the tokens of all lessons' answers."""

    log_probabilities: NDArray[np.float32]

    def divergence(self, other: "Predicted") -> float:
        """Return the mean Kullback-Leibler divergence of the other's distributions from these, in nats a token."""
        mine, differs = self.log_probabilities, 0.0
        for at in range(0, len(mine), _ROWS):
            part = slice(at, at + _ROWS)
            differs += float(np.sum(np.exp(mine[part]) * (mine[part] - other.log_probabilities[part])))
        return differs / len(mine)

    def agreement(self, other: "Predicted") -> float:
        """Return at which share of the positions the most likely token is the same."""
        same = self.log_probabilities.argmax(axis=1) == other.log_probabilities.argmax(axis=1)
        return float(same.mean())


def predicted(checkpoint: Checkpoint, lessons: Sequence[Lesson]) -> Predicted:
    """Return what is predicted for each token of the lessons' answers, given the tokens before."""
    states = hidden_states(checkpoint, [lesson.ids for lesson in lessons], PlainProducts(), lambda _fraction: None)
    tied = checkpoint.architecture.tied_embedding
    table = checkpoint.read("embed_tokens" if tied else "lm_head")
    rows: list[int] = []
    start = 0
    for lesson in lessons:
        rows += range(start + lesson.start - 1, start := start + len(lesson.ids) - 1)
        start += 1
    logs = [_log_softmax(states[rows[at : at + _ROWS]] @ table.T) for at in range(0, len(rows), _ROWS)]
    return Predicted(np.concatenate(logs))


def _log_softmax(logits: Float32Array) -> Float32Array:
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
