"""The decoder of `workers/graph/decoder.py` in torch.

Products, KV and attention use the weights' own type; residual stream, norms, rotations and logits are float32, as in
the graph for TensorRT. KV is one array `[layers, 2, slots, kv heads, capacity, head dim]`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone calls it
from torch.nn.attention.bias import causal_lower_right

from shared.model.folder import Architecture, Experts
from workers.engine.torch.weights import (
    AnyLinear,
    DecoderWeights,
    LayerWeights,
    MixtureWeights,
    Mlp,
    RoundedLinear,
)
from workers.graph.rotary import rotary_tables

# Takes one layer's query, key and value heads `[B, T, heads, head dim]`, returns the attended values `[B, T, heads *
# head dim]`.
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class TorchDecoder:
    """The decoder. `cosines` and `sines` `[capacity, 1, head dim]` rotate a head by position; the first half of `sines`
    is negative.
    """

    architecture: Architecture
    weights: DecoderWeights
    cosines: Tensor
    sines: Tensor

    @classmethod
    def for_weights(cls, architecture: Architecture, weights: DecoderWeights, capacity: int) -> "TorchDecoder":
        """Create a decoder with the angles of `capacity` positions."""
        device = weights.norm.device
        cosines, sines = (torch.from_numpy(table).to(device) for table in rotary_tables(architecture, capacity))
        return cls(
            architecture,
            weights,
            torch.cat((cosines, cosines), -1).unsqueeze(1),
            torch.cat((-sines, sines), -1).unsqueeze(1),
        )

    def decode(self, kv: Tensor, token_ids: Tensor, past: Tensor, span: int) -> Tensor:
        """Return logits `[B, vocabulary]` of the first B slots after one more token each.

        No operation depends on a value, so that a step can be recorded.

        Args:
            kv: the KV of all slots.
            token_ids: the new tokens `[B]`.
            past: number of tokens before them `[B]`.
            span: attention reads this many positions, and masks those after each row's end.
        """
        a = self.architecture
        rows = len(token_ids)
        slots = torch.arange(rows, device=kv.device)
        places = torch.arange(span, device=kv.device)
        hidden = places.new_zeros((rows, span), dtype=kv.dtype).masked_fill_(places > past.unsqueeze(1), float("-inf"))
        mask = hidden.view(rows, 1, 1, span)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = kv[layer, 0, :rows], kv[layer, 1, :rows]
            keys[slots, :, past] = key[:, 0]
            values[slots, :, past] = value[:, 0]
            # the queries that share a key head are treated as tokens, since the order does not matter for one token
            grouped = query.view(rows, a.num_kv_heads, -1, a.head_dim)
            found = F.scaled_dot_product_attention(grouped, keys[:, :, :span], values[:, :, :span], attn_mask=mask)
            return found.reshape(rows, 1, -1)

        return self._logits(token_ids.unsqueeze(1), past.unsqueeze(1), attend, None)

    def prefill(self, kv: Tensor, token_ids: Tensor, past: int, last: Tensor) -> Tensor:
        """Return logits `[B, vocabulary]` after token `last` `[B]` of each row of `token_ids` `[B, T]`.

        Args:
            kv: the KV of B slots.
            token_ids: the new tokens; shorter rows are padded on the right.
            past: number of tokens before them; 0 for more than one row.
            last: index of each row's last token.
        """
        a = self.architecture
        rows, width = token_ids.shape
        end = past + width
        shared = a.num_heads != a.num_kv_heads

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
            keys, values = kv[layer, 0], kv[layer, 1]
            keys[:, :, past:end] = key
            values[:, :, past:end] = value
            if past == 0:
                found = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shared)
            else:
                found = F.scaled_dot_product_attention(
                    query,
                    keys[:, :, :end],
                    values[:, :, :end],
                    attn_mask=causal_lower_right(width, end),
                    enable_gqa=shared,
                )
            return found.transpose(1, 2).reshape(rows, width, -1)

        positions = torch.arange(past, end, device=kv.device).unsqueeze(0)
        return self._logits(token_ids, positions, attend, last)

    def _logits(self, token_ids: Tensor, positions: Tensor, attend: Attend, last: Tensor | None) -> Tensor:
        """Return logits. Without `last` each row has one token."""
        epsilon = self.architecture.norm_epsilon
        weights = self.weights
        dtype = weights.embedding.dtype
        cosines, sines = self.cosines[positions], self.sines[positions]
        hidden = F.embedding(token_ids, weights.embedding).float()
        for index, layer in enumerate(weights.layers):
            normed = _rms_norm(hidden, layer.input_norm, epsilon).to(dtype)
            query, key, value = self._heads(layer, normed, cosines, sines)
            attended = attend(index, query, key, value)
            if last is not None and index == len(weights.layers) - 1:
                # only the last token's logits are needed, so the rest is not computed
                hidden, attended = _at(hidden, last), _at(attended, last)
            hidden = hidden + _product(attended, layer.output)
            normed = _rms_norm(hidden, layer.mlp_norm, epsilon).to(dtype)
            hidden = hidden + self._mlp(index, layer, normed)
        normed = _rms_norm(hidden[:, 0], weights.norm, epsilon).to(dtype)
        return _product(normed, weights.head).float()

    def _mlp(self, index: int, layer: LayerWeights, normed: Tensor) -> Tensor:
        mixture, experts = layer.mlp, self.architecture.experts_in(index)
        if isinstance(mixture, Mlp):
            return _gated(normed, mixture)
        assert experts is not None
        found = _mixed(normed.flatten(0, -2), mixture, experts).view(normed.shape)
        if mixture.shared is None or mixture.shared_gate is None:
            return found
        return found + F.linear(normed.float(), mixture.shared_gate).sigmoid() * _gated(normed, mixture.shared)

    def _heads(
        self, layer: LayerWeights, normed: Tensor, cosines: Tensor, sines: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return query and key heads, normed if the layer norms them, and rotated, and value heads."""
        a = self.architecture
        rows, width = normed.shape[:2]
        packed = _product(normed, layer.qkv).view(rows, width, -1, a.head_dim)
        counts = [a.num_heads, a.num_kv_heads]
        turned, value = torch.split(packed, [sum(counts), a.num_kv_heads], 2)
        if layer.query_norm is not None and layer.key_norm is not None:
            parts = zip(torch.split(turned.float(), counts, 2), (layer.query_norm, layer.key_norm), strict=True)
            turned = torch.cat([_normed_heads(part, scale, a.norm_epsilon) for part, scale in parts], 2)
        swapped = turned.roll(a.head_dim // 2, -1)
        query, key = torch.split(torch.addcmul(turned * cosines, swapped, sines).to(value.dtype), counts, 2)
        return query, key, value


def _gated(value: Tensor, mlp: Mlp) -> Tensor:
    gate, up = _product(value, mlp.gate_up).chunk(2, -1)
    return _product(F.silu(gate) * up, mlp.down)


def _mixed(rows: Tensor, mixture: MixtureWeights, experts: Experts) -> Tensor:
    """Return the weighted sum of the experts that each row of `[rows, hidden]` chooses, in float32.

    Every expert computes every row: a recorded step has fixed shapes. Of equal scores the lower number is chosen.
    """
    scores = F.linear(rows.float(), mixture.router)
    highest, numbers = (found[:, : experts.chosen] for found in scores.sort(dim=1, descending=True, stable=True))
    over = highest if experts.normalized else scores
    shares = (highest - over.logsumexp(1, keepdim=True)).exp()
    weights = torch.zeros_like(scores).scatter(1, numbers, shares)
    found = (F.silu(rows @ mixture.gate) * (rows @ mixture.up)) @ mixture.down
    return (found.float() * weights.t().unsqueeze(-1)).sum(0)


def _normed_heads(heads: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Norm `[…, heads, head dim]` by the size of `scale`: each head, or all together."""
    return _rms_norm(heads.reshape(*heads.shape[:-2], -1, len(scale)), scale, epsilon).reshape(heads.shape)


def _product(value: Tensor, linear: AnyLinear) -> Tensor:
    """Multiply by a matrix; an 8-bit one by the numbers that its levels represent."""
    if isinstance(linear, RoundedLinear):
        if linear.step is not None:
            value = (on_grid(value, linear.step, linear.matrix.dtype).float() * linear.step).to(value.dtype)
        linear = linear.unrounded(value.dtype)
    return F.linear(value, linear.matrix, linear.bias)


def on_grid(value: Tensor, step: float, dtype: torch.dtype) -> Tensor:
    """Return `value` in multiples of `step`, rounded as int8 (to nearest, ties to even) or E4M3."""
    multiples = value.float() / step
    if dtype == torch.int8:
        return multiples.round_().clamp_(-128, 127).to(dtype)
    return multiples.clamp_(-448, 448).to(dtype)


def _rms_norm(value: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    return F.rms_norm(value, scale.shape, scale, epsilon)


def _at(value: Tensor, last: Tensor) -> Tensor:
    """Return the rows' tokens at `last`: `[B, T, n]` → `[B, 1, n]`."""
    return value[torch.arange(len(value), device=value.device), last].unsqueeze(1)
