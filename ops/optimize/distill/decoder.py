"""The decoder that `workers/graph/decoder.py` describes, as one that learns: a checkpoint's weights stay as they are,
and beside each matrix stands a product of two small ones (LoRA, https://arxiv.org/abs/2106.09685).

The checkpoint's matrices are in `dtype`, and so are products and attention; the residual stream, the norms, the
rotations, the logits and everything that learns are float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from shared.model.folder import Architecture
from workers.graph.rotary import rotary_tables
from workers.graph.sources.adapter import LORA_MODULES
from workers.graph.sources.checkpoint import Checkpoint


@dataclass(slots=True)
class LowRank:
    """What is added to the matrices: `scale * up @ down`, by the matrix's canonical name.

    `down` are `[rank, in]`, small and random at the start; `up` are `[out, rank]`, zeros at the start.
    """

    rank: int
    alpha: float
    down: dict[str, Tensor]
    up: dict[str, Tensor]

    @classmethod
    def fresh(
        cls, architecture: Architecture, *, rank: int, alpha: float, seed: int, device: torch.device
    ) -> "LowRank":
        random = torch.Generator().manual_seed(seed)
        made = cls(rank, alpha, {}, {})
        for name, (num_out, num_in) in lora_shapes(architecture).items():
            bound = num_in**-0.5
            noise = (torch.rand((rank, num_in), generator=random) * 2 - 1) * bound
            made.down[name] = noise.to(device).requires_grad_()
            made.up[name] = torch.zeros((num_out, rank), device=device).requires_grad_()
        return made

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def parameters(self) -> list[Tensor]:
        """All that learns, in an order of its own."""
        return [*self.down.values(), *self.up.values()]


def lora_shapes(architecture: Architecture) -> dict[str, tuple[int, int]]:
    """Canonical name → `(out, in)` of every matrix that gets one."""
    a = architecture
    query, key_value = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    sizes = {
        "q_proj": (query, a.hidden_size),
        "k_proj": (key_value, a.hidden_size),
        "v_proj": (key_value, a.hidden_size),
        "o_proj": (a.hidden_size, query),
        "gate_proj": (a.intermediate_size, a.hidden_size),
        "up_proj": (a.intermediate_size, a.hidden_size),
        "down_proj": (a.hidden_size, a.intermediate_size),
    }
    return {
        f"layers.{layer}.{LORA_MODULES[module]}": size
        for layer in range(a.num_layers)
        for module, size in sizes.items()
    }


@dataclass(slots=True)
class TrainedDecoder:
    """A checkpoint's decoder, with or without something to learn."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    dtype: torch.dtype
    low_rank: LowRank | None = None
    _turns: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> "TrainedDecoder":
        """Matrices in `dtype`, norms and biases in float32."""
        weights = {}
        for name, weight in checkpoint.weights.items():
            read = torch.from_numpy(checkpoint.read(name).copy()).to(device)
            weights[name] = read if len(weight.shape) == 1 else read.to(dtype)
        return cls(checkpoint.architecture, weights, dtype)

    @property
    def device(self) -> torch.device:
        return self.weights["norm"].device

    def logits(self, token_ids: Tensor, wanted: Tensor) -> Tensor:
        """float32 logits `[N, vocabulary]` behind the `N` tokens of `token_ids` `[B, T]` that `wanted` `[B, T]` marks.

        Shorter rows are padded on the right: what stands there is seen by no token before it.
        """
        a, weights = self.architecture, self.weights
        cosines, sines = self._rotations(token_ids.shape[1])
        hidden = F.embedding(token_ids, weights["embed_tokens"]).float()
        for index in range(a.num_layers):
            layer = f"layers.{index}"
            normed = self._norm(f"{layer}.input_layernorm", hidden)
            hidden = hidden + self._attention(f"{layer}.self_attn", normed, cosines, sines)
            normed = self._norm(f"{layer}.post_attention_layernorm", hidden)
            gate, up = (self._linear(f"{layer}.mlp.{part}_proj", normed) for part in ("gate", "up"))
            hidden = hidden + self._linear(f"{layer}.mlp.down_proj", F.silu(gate) * up)
        head = weights["embed_tokens" if a.tied_embedding else "lm_head"]
        return F.linear(self._norm("norm", hidden[wanted]), head).float()

    def _attention(self, prefix: str, normed: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        a = self.architecture
        rows, width, _ = normed.shape
        heads = [self._linear(f"{prefix}.{part}_proj", normed).view(rows, width, -1, a.head_dim) for part in "qkv"]
        query, key, value = (part.transpose(1, 2) for part in heads)
        if a.query_key_norm:
            query, key = self._norm(f"{prefix}.q_norm", query.float()), self._norm(f"{prefix}.k_norm", key.float())
        query, key = self._turned(query, cosines, sines), self._turned(key, cosines, sines)
        shared = a.num_heads != a.num_kv_heads
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shared)
        return self._linear(f"{prefix}.o_proj", found.transpose(1, 2).reshape(rows, width, -1))

    def _linear(self, name: str, value: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias")
        product = F.linear(value, self.weights[name], None if bias is None else bias.to(self.dtype))
        if self.low_rank is None or name not in self.low_rank.down:
            return product
        down, up = (part[name].to(self.dtype) for part in (self.low_rank.down, self.low_rank.up))
        return product + F.linear(F.linear(value, down), up * self.low_rank.scale)

    def _norm(self, name: str, value: Tensor) -> Tensor:
        scale = self.weights[name]
        return F.rms_norm(value, scale.shape, scale, self.architecture.norm_epsilon).to(self.dtype)

    def _turned(self, heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """`[B, heads, T, head dim]`, each pair `(i, i + head dim / 2)` turned by its position's angle."""
        swapped = heads.roll(self.architecture.head_dim // 2, -1)
        return torch.addcmul(heads * cosines, swapped, sines).to(self.dtype)

    def _rotations(self, width: int) -> tuple[Tensor, Tensor]:
        """`[T, head dim]`; the first half of the sines is negative."""
        if width not in self._turns:
            cosines, sines = (
                torch.from_numpy(table).to(self.device) for table in rotary_tables(self.architecture, width)
            )
            self._turns[width] = torch.cat((cosines, cosines), -1), torch.cat((-sines, sines), -1)
        return self._turns[width]
