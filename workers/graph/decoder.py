"""Describe a Llama-family decoder layer by layer, once for all runtimes.

The input is B sequences of T new tokens each. All that runtimes express differently (attention, norms, matrix products,
inputs and outputs) is delegated to a `Dialect`, one implementation for each runtime.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shared.model.folder import Experts
from workers.graph.routing import Mixture
from workers.graph.sources.checkpoint import ROUTER, SHARED, SHARED_GATE, Checkpoint, Float32Array

Progress = Callable[[float], None]


class Dialect(Protocol):
    """Adds nodes and weights to one graph. A method returns the name of the value that its nodes compute."""

    def begin(self) -> None:
        """Add what every layer's attention reads."""

    def embed(self, table: Float32Array) -> str:
        """Return the rows `[B, T, hidden]` of the embedding, which `logits` may use again."""

    def norm(self, name: str, scale: Float32Array, hidden: str, branch: str | None) -> tuple[str, str]:
        """Add `branch` to the residual stream `hidden`; return the stream and its RMS-normed value."""

    def linear(self, name: str, matrix: Float32Array, bias: Float32Array | None, value: str) -> str:
        """`value` `[…, in]` times a matrix `[out, in]`, plus a bias `[out]`."""

    def attention(self, layer: int, packed: str, norms: tuple[Float32Array, Float32Array] | None) -> str:
        """Append to the layer's KV and attend: `[B, T, heads * head_dim]`.

        `packed` is every query, key and value head side by side; `norms` are the scales of the RMS norms of query and
        key, of each head or of all together, to be applied before they are rotated.
        """

    def gated(self, name: str, gate: str, up: str) -> str:
        """`silu(gate) * up`."""

    def experts(self, name: str, mixture: Mixture, value: str) -> str:
        """Return the weighted sum of the experts that each token's scores choose."""

    def shared_expert(self, name: str, gate: Float32Array, value: str, shared: str, branch: str) -> str:
        """`branch` plus `shared` times the sigmoid of `value` times `gate` `[1, hidden]`."""

    def last(self, value: str) -> str:
        """`[B, T, n]` → `[B, n]`: each sequence's last token."""

    def logits(self, head: Float32Array | None, normed: str) -> None:
        """Add the output `logits` `[B, vocabulary]`; without a separate head the embedding's table is used."""


@dataclass(frozen=True, slots=True)
class Decoder:
    checkpoint: Checkpoint
    dialect: Dialect

    def build(self, progress: Progress) -> None:
        """Add every node from `input_ids` to `logits`; `progress` is called with the fraction done."""
        num_layers = self.checkpoint.architecture.num_layers
        self.dialect.begin()
        hidden, branch = self.dialect.embed(self.checkpoint.read("embed_tokens")), None
        for index in range(num_layers):
            progress(index / num_layers)
            layer = f"layers.{index}"
            hidden, normed = self._norm(f"{layer}.input_layernorm", hidden, branch)
            attended = self._attention(index, normed)
            if index == num_layers - 1:
                # Logits are wanted of each sequence's last token: from here on nothing else is computed.
                hidden, attended = self.dialect.last(hidden), self.dialect.last(attended)
            branch = self._linear(f"{layer}.self_attn.o_proj", attended)
            hidden, normed = self._norm(f"{layer}.post_attention_layernorm", hidden, branch)
            experts = self.checkpoint.architecture.experts_in(index)
            branch = self._mlp(f"{layer}.mlp", normed) if experts is None else self._experts(layer, experts, normed)
        _, normed = self._norm("norm", hidden, branch)
        tied = self.checkpoint.architecture.tied_embedding
        self.dialect.logits(None if tied else self.checkpoint.read("lm_head"), normed)
        progress(1.0)

    def _attention(self, index: int, normed: str) -> str:
        prefix = f"layers.{index}.self_attn"
        projections = [f"{prefix}.{part}_proj" for part in "qkv"]
        # One product instead of three.
        matrix = np.concatenate([self.checkpoint.read(name) for name in projections])
        biases = [self._bias(name) for name in projections]
        bias = np.concatenate([part for part in biases if part is not None]) if biases[0] is not None else None
        norms = None
        if self.checkpoint.architecture.query_key_norm:
            norms = self.checkpoint.read(f"{prefix}.q_norm"), self.checkpoint.read(f"{prefix}.k_norm")
        packed = self.dialect.linear(f"{prefix}.qkv", matrix, bias, normed)
        return self.dialect.attention(index, packed, norms)

    def _mlp(self, prefix: str, normed: str) -> str:
        gate = self._linear(f"{prefix}.gate_proj", normed)
        up = self._linear(f"{prefix}.up_proj", normed)
        return self._linear(f"{prefix}.down_proj", self.dialect.gated(prefix, gate, up))

    def _experts(self, layer: str, experts: Experts, normed: str) -> str:
        read = self.checkpoint.read
        mixture = Mixture(
            experts,
            read(f"{layer}.{ROUTER}"),
            lambda number, part: read(f"{layer}.mlp.experts.{number}.{part}"),
        )
        branch = self.dialect.experts(f"{layer}.mlp", mixture, normed)
        if not experts.shared_width:
            return branch
        shared = self._mlp(f"{layer}.{SHARED}", normed)
        gate = f"{layer}.{SHARED_GATE}"
        return self.dialect.shared_expert(gate, read(gate), normed, shared, branch)

    def _norm(self, name: str, hidden: str, branch: str | None) -> tuple[str, str]:
        return self.dialect.norm(name, self.checkpoint.read(name), hidden, branch)

    def _linear(self, name: str, value: str) -> str:
        return self.dialect.linear(name, self.checkpoint.read(name), self._bias(name), value)

    def _bias(self, name: str) -> Float32Array | None:
        name = f"{name}.bias"
        return self.checkpoint.read(name) if name in self.checkpoint.weights else None


def cache_names(side: str, num_layers: int) -> list[str]:
    """Return the names of the KV of one side, `past` or `present`, in the order of the layers."""
    return [f"{side}_{part}.{layer}" for layer in range(num_layers) for part in ("key", "value")]
