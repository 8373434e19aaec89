"""A decode step of fused kernels: `TorchDecoder.decode`, but for how sums are rounded."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from shared.model.folder import Architecture
from workers.engine.torch.decoder.layers import on_grid
from workers.engine.torch.decoder.weights import AnyLinear, DecoderWeights, RoundedLinear
from workers.engine.torch.kernels.attention import attend, parts_for
from workers.engine.torch.kernels.greedy import greedy
from workers.engine.torch.kernels.norm import norm
from workers.engine.torch.kernels.product import Shape, Workspace, product

# Matrices are read in whole tiles of so many inputs at least.
_INPUTS_MULTIPLE: Final = 32


def takes(architecture: Architecture) -> bool:
    """Whether the kernels' tiles fit a model of this shape."""
    a = architecture
    inputs = (a.hidden_size, a.num_heads * a.head_dim, a.intermediate_size)
    return all(size % _INPUTS_MULTIPLE == 0 for size in inputs) and a.head_dim % 2 == 0


class FusedStep:
    """Buffers for up to `rows` rows are taken here, none later. `cosines` and `sines` are float32 `[capacity, head dim
    / 2]`."""

    def __init__(
        self, architecture: Architecture, weights: DecoderWeights, cosines: Tensor, sines: Tensor, *, rows: int
    ) -> None:
        a = architecture
        device, dtype = weights.norm.device, weights.embedding.dtype
        self._architecture = a
        self._weights = weights
        self._cosines, self._sines = cosines, sines
        self._parts = parts_for(
            rows,
            key_heads=a.num_kv_heads,
            group=a.num_heads // a.num_kv_heads,
            head_dim=a.head_dim,
            capacity=len(cosines),
            device=device,
        )
        shapes = {Shape.of(weights.head)}
        for layer in weights.layers:
            shapes |= {Shape.of(linear) for linear in (layer.qkv, layer.output, layer.down)}
            shapes.add(Shape.of(layer.gate_up, gated=True))
        self._workspace = Workspace.of(shapes, rows=rows, device=device)

        def buffer(width: int) -> Tensor:
            return torch.empty(rows * width, dtype=dtype, device=device)

        self._packed = buffer((a.num_heads + 2 * a.num_kv_heads) * a.head_dim)
        self._attended = buffer(a.num_heads * a.head_dim)
        self._normed = buffer(a.hidden_size)
        self._gated = buffer(a.intermediate_size)

    def __call__(
        self, kv: Tensor, token_ids: Tensor, past: Tensor, span: int, *, logits: Tensor, peaks: Tensor, best: Tensor
    ) -> None:
        """Add one token to each of the first B slots: `token_ids` `[B]` at `past` `[B]`, none of which reaches `span`.

        Writes `logits` float32 `[B, vocabulary]`, each row's largest to `peaks` `[B, 1]` and the smallest token that
        has it to `best` `[B]`. A row whose `past` is its slot's last place only pads the step: what it gives counts for
        nothing, and the slot stays as it is.
        """
        a, weights, workspace = self._architecture, self._weights, self._workspace
        rows = len(token_ids)
        hidden = F.embedding(token_ids, weights.embedding).float()
        packed = _rows_of(self._packed, rows, (a.num_heads + 2 * a.num_kv_heads) * a.head_dim)
        attended = _rows_of(self._attended, rows, a.num_heads * a.head_dim)
        for index, layer in enumerate(weights.layers):
            product(self._norm(hidden, layer.input_norm, layer.qkv), layer.qkv, packed, workspace)
            attend(
                packed,
                kv[index, 0],
                kv[index, 1],
                past,
                self._cosines,
                self._sines,
                attended,
                self._parts,
                span=span,
                epsilon=a.norm_epsilon,
                query_norm=layer.query_norm,
                key_norm=layer.key_norm,
            )
            product(attended, layer.output, hidden, workspace, added=True)
            gated = _rows_of(self._gated, rows, a.intermediate_size, read_by=layer.down)
            normed = self._norm(hidden, layer.mlp_norm, layer.gate_up)
            product(normed, layer.gate_up, gated, workspace, gated=True, out_step=_step(layer.down))
            product(gated, layer.down, hidden, workspace, added=True)
        product(self._norm(hidden, weights.norm, weights.head), weights.head, logits, workspace)
        greedy(logits, peaks, best)

    def _norm(self, hidden: Tensor, scale: Tensor, read_by: AnyLinear) -> Tensor:
        normed = _rows_of(self._normed, *hidden.shape, read_by=read_by)
        norm(hidden, scale, normed, epsilon=self._architecture.norm_epsilon, step=_step(read_by))
        return normed


def rounded_product(value: Tensor, linear: AnyLinear) -> Tensor:
    """`value` `[…, in]` times a matrix of 8 bits, whose levels are read as they are: `[…, out]`."""
    step = _step(linear)
    read = (value if step is None else on_grid(value, step, linear.matrix.dtype)).reshape(-1, value.shape[-1])
    out = torch.empty((len(read), len(linear.matrix)), dtype=value.dtype, device=value.device)
    product(read, linear, out, Workspace.of([Shape.of(linear)], rows=len(read), device=value.device))
    return out.view(*value.shape[:-1], -1)


def _rows_of(buffer: Tensor, rows: int, width: int, *, read_by: AnyLinear | None = None) -> Tensor:
    """`[rows, width]` in a buffer, of the type that a product reads."""
    if read_by is not None and _step(read_by) is not None:
        buffer = buffer.view(read_by.matrix.dtype)
    return buffer[: rows * width].view(rows, width)


def _step(linear: AnyLinear) -> float | None:
    return linear.step if isinstance(linear, RoundedLinear) else None
