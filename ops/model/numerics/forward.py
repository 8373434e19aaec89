"""Compute the decoder in numpy while it is being described: the float32 reference, and its result in 8 bits.

A `Dialect` whose values are arrays. Texts are concatenated without padding, and every weight is read once for all of
them. The products of linear layers are computed by `Products`, which can observe their inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.model.folder import Architecture
from workers.graph.decoder import Decoder
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.rotary import rotary_tables
from workers.graph.routing import Mixture, chosen_experts
from workers.graph.sources.checkpoint import Checkpoint, Float32Array

IntArray = NDArray[np.int64]
# Number of rows of logits computed together: 49,152 words of 512 tokens are 100 MB.
_LOGIT_ROWS: Final = 512


class Products(Protocol):
    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        """Return `value` `[tokens, in]` times the matrix `[out, in]` of linear layer `name`: `[tokens, out]`."""


class PlainProducts:
    """Products with the checkpoint's own weights."""

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:  # noqa: ARG002
        return value @ matrix.T


@dataclass(frozen=True, slots=True)
class RoundedProducts:
    """Products as `QdqMatrices` computes them: in 8 bits for the layers in `linears`, with the checkpoint's weights for
    all others."""

    linears: Mapping[str, RoundedLinear]

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        linear = self.linears.get(name)
        if linear is None:
            return value @ matrix.T
        if linear.activation_scale is not None:
            value = linear.matrix.grid.rounded(value, linear.activation_scale)
        return value @ linear.matrix.dequantized().T


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions for every position except the first of each text. `top` is the most likely token given the tokens
    before, `log_probability` the natural logarithm of the actual token's probability. Both are `[positions]`, text
    after text."""

    top: IntArray
    log_probability: Float32Array


def predict(checkpoint: Checkpoint, texts: Sequence[Sequence[int]], products: Products) -> Predictions:
    """Run the decoder on `texts`, each of at least two tokens."""
    dialect = NumpyDialect(checkpoint.architecture, texts, products)
    Decoder(checkpoint, dialect).build(lambda _fraction: None)
    return Predictions(np.concatenate(dialect.top), np.concatenate(dialect.log_probability))


def observe(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], products: Products, progress: Callable[[float], None]
) -> None:
    """Pass the input of every linear layer on `texts` to `products`, without computing logits."""
    Decoder(checkpoint, NumpyDialect(checkpoint.architecture, texts, products, with_logits=False)).build(progress)


def hidden_states(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], products: Products, progress: Callable[[float], None]
) -> Float32Array:
    """Return every token's input to the logits `[tokens, hidden]`, text after text."""
    reader = _Reader(checkpoint.architecture, texts, products)
    Decoder(checkpoint, reader).build(progress)
    return reader.projected


@dataclass(slots=True)
class NumpyDialect:
    architecture: Architecture
    texts: Sequence[Sequence[int]]
    products: Products
    with_logits: bool = True
    top: list[IntArray] = field(default_factory=list, init=False)
    log_probability: list[Float32Array] = field(default_factory=list, init=False)
    _values: dict[str, Float32Array] = field(default_factory=dict, init=False)
    _table: Float32Array = field(init=False)
    _cosines: Float32Array = field(init=False)
    _sines: Float32Array = field(init=False)

    def begin(self) -> None:
        lengths = [len(text) for text in self.texts]
        positions = np.concatenate([np.arange(length) for length in lengths])
        cosines, sines = rotary_tables(self.architecture, max(lengths))
        self._cosines, self._sines = cosines[positions, np.newaxis], sines[positions, np.newaxis]

    def embed(self, table: Float32Array) -> str:
        self._table = table
        return self._keep("embedded", table[np.concatenate([np.asarray(text, np.int64) for text in self.texts])])

    def norm(self, name: str, scale: Float32Array, hidden: str, branch: str | None) -> tuple[str, str]:
        total = self._values[hidden] if branch is None else self._values[hidden] + self._values[branch]
        # Everything after a norm is computed from these two, so earlier values are released.
        self._values.clear()
        return self._keep(f"{name}.residual", total), self._keep(f"{name}.out", self._rms_norm(total, scale))

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        product = self.products.multiply(name, self._values[value], matrix)
        return self._keep(name, product if bias is None else product + bias)

    def attention(self, layer: int, packed: str, norms: tuple[Float32Array, Float32Array] | None) -> str:
        a = self.architecture
        heads = self._values[packed].reshape(-1, a.num_heads + 2 * a.num_kv_heads, a.head_dim)
        query, key, value = np.split(heads, np.cumsum([a.num_heads, a.num_kv_heads]), axis=1)
        if norms is not None:
            query, key = self._normed_heads(query, norms[0]), self._normed_heads(key, norms[1])
        query, key = self._rotated(query) * np.float32(a.head_dim**-0.5), self._rotated(key)
        attended = np.empty_like(query)
        start = 0
        for text in self.texts:
            here = slice(start, start := start + len(text))
            attended[here] = _attend(query[here], key[here], value[here])
        return self._keep(f"layers.{layer}.attended", attended.reshape(len(attended), -1))

    def gated(self, name: str, gate: str, up: str) -> str:
        return self._keep(f"{name}.gated", _gated(self._values[gate], self._values[up]))

    def experts(self, name: str, mixture: Mixture, value: str) -> str:
        """Multiply the rows that chose an expert by its matrices; one that no row chose is not multiplied."""
        every, multiply = self._values[value], self.products.multiply
        numbers, weights = chosen_experts(multiply(f"{name}.gate", every, mixture.router), mixture.experts)
        total = np.zeros_like(every)
        for number in np.unique(numbers).tolist():
            at, rank = np.nonzero(numbers == number)
            expert = f"{name}.experts.{number}"
            gate, up = (
                multiply(f"{expert}.{part}", every[at], mixture.read(number, part)) for part in ("gate_proj", "up_proj")
            )
            down = multiply(f"{expert}.down_proj", _gated(gate, up), mixture.read(number, "down_proj"))
            total[at] += weights[at, rank, np.newaxis] * down
        return self._keep(f"{name}.experts", total)

    def shared_expert(self, name: str, gate: Float32Array, value: str, shared: str, branch: str) -> str:
        score = self.products.multiply(name, self._values[value], gate)
        return self._keep(f"{name}.sum", self._values[branch] + _sigmoid(score) * self._values[shared])

    def last(self, value: str) -> str:
        """Return all values: every token's logits are needed."""
        return value

    def logits(self, head: Float32Array | None, normed: str) -> None:
        if not self.with_logits:
            return
        table = self._table if head is None else head
        hidden = self._values[normed]
        start = 0
        rows, targets = [], []
        for text in self.texts:
            rows.append(np.arange(start, start + len(text) - 1))
            targets.append(np.asarray(text[1:], np.int64))
            start += len(text)
        all_rows, all_targets = np.concatenate(rows), np.concatenate(targets)
        for at in range(0, len(all_rows), _LOGIT_ROWS):
            part = slice(at, at + _LOGIT_ROWS)
            self._score(hidden[all_rows[part]] @ table.T, all_targets[part])

    def _score(self, logits: Float32Array, targets: IntArray) -> None:
        top = logits.argmax(axis=1)
        places = np.arange(len(targets))
        peaks = logits[places, top]
        wanted = logits[places, targets] - peaks
        logits -= peaks[:, np.newaxis]
        np.exp(logits, out=logits)
        self.top.append(top)
        self.log_probability.append(wanted - np.log(logits.sum(axis=1)))

    def _keep(self, name: str, values: Float32Array) -> str:
        self._values[name] = values
        return name

    def _rms_norm(self, values: Float32Array, scale: Float32Array) -> Float32Array:
        squares = np.mean(np.square(values), axis=-1, keepdims=True)
        normed: Float32Array = values / np.sqrt(squares + np.float32(self.architecture.norm_epsilon)) * scale
        return normed

    def _normed_heads(self, heads: Float32Array, scale: Float32Array) -> Float32Array:
        """Norm `[tokens, heads, head_dim]` by the size of `scale`: each head, or all together."""
        return self._rms_norm(heads.reshape(len(heads), -1, len(scale)), scale).reshape(heads.shape)

    def _rotated(self, heads: Float32Array) -> Float32Array:
        """Return `[tokens, heads, head_dim]` with each pair `(i, i + head_dim / 2)` rotated by its position's angle."""
        first, second = np.split(heads, 2, axis=-1)
        turned = first * self._cosines - second * self._sines, second * self._cosines + first * self._sines
        return np.concatenate(turned, axis=-1)


class _Reader(NumpyDialect):
    """Records every token's input to the logits instead of computing them."""

    __slots__ = ("projected",)
    projected: Float32Array

    def logits(self, head: Float32Array | None, normed: str) -> None:  # noqa: ARG002
        self.projected = self._values[normed]


def _sigmoid(values: Float32Array) -> Float32Array:
    with np.errstate(over="ignore"):
        found: Float32Array = np.reciprocal(1 + np.exp(-values))
    return found


def _gated(gate: Float32Array, up: Float32Array) -> Float32Array:
    with np.errstate(over="ignore"):
        found: Float32Array = gate / (1 + np.exp(-gate)) * up
    return found


def _attend(query: Float32Array, key: Float32Array, value: Float32Array) -> Float32Array:
    """Return the causal attention of one text, `[tokens, heads, head_dim]`. Query heads share key-value heads in
    order."""
    tokens, num_heads, _ = query.shape
    shared = num_heads // key.shape[1]
    by_head = query.transpose(1, 0, 2)
    keys = np.repeat(key.transpose(1, 2, 0), shared, axis=0)
    values = np.repeat(value.transpose(1, 0, 2), shared, axis=0)
    scores: Float32Array = by_head @ keys
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    attended: Float32Array = (scores @ values).transpose(1, 0, 2)
    return attended
