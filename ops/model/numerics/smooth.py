"""Move outliers of the input channels of products from activations into weights (SmoothQuant, arXiv 2211.10438).

A channel that is divided by its factor before a product is multiplied by it inside the product's matrix, so the product
is unchanged. No node is added to the graph, because the preceding layer does the division.

    q, k and v_proj      the RMS norm's weight is divided, the columns of all three are multiplied
    gate_proj, up_proj   the RMS norm's weight is divided, the columns of both are multiplied, of every expert too, and
                         the router's
    down_proj            the rows of up_proj (and its bias) are divided, the columns of down_proj are multiplied
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight, expected_shapes

_AFTER_HIDDEN: Final = (".down_proj", ".bias")


def smoothed(
    checkpoint: Checkpoint,
    hidden: Mapping[int, Float32Array],
    intermediate: Mapping[str, Float32Array],
    *,
    attention: Mapping[int, Float32Array] = MappingProxyType({}),
) -> Checkpoint:
    """Return `checkpoint` with factors folded in. Layers without factors are unchanged.

    Args:
        checkpoint: the original weights
        hidden: by layer, `[hidden]` factors before gate and up, all above 0
        intermediate: by MLP (`layers.0.mlp`, `layers.0.mlp.experts.3`), `[intermediate]` factors before down
        attention: by layer, `[hidden]` factors before query, key and value
    """
    weights = dict(checkpoint.weights)

    def scale(name: str, factors: Float32Array, *, rows: bool, divided: bool) -> None:
        if name in weights:
            weights[name] = _scaled(weights[name], np.reciprocal(factors) if divided else factors, rows=rows)

    for layer, factors in attention.items():
        scale(f"layers.{layer}.input_layernorm", factors, rows=True, divided=True)
        for part in "qkv":
            scale(f"layers.{layer}.self_attn.{part}_proj", factors, rows=False, divided=False)
    for layer, factors in hidden.items():
        scale(f"layers.{layer}.post_attention_layernorm", factors, rows=True, divided=True)
        for name in expected_shapes(checkpoint.architecture):
            if name.startswith(f"layers.{layer}.mlp.") and not name.endswith(_AFTER_HIDDEN):
                scale(name, factors, rows=False, divided=False)
    for mlp, factors in intermediate.items():
        scale(f"{mlp}.up_proj", factors, rows=True, divided=True)
        scale(f"{mlp}.up_proj.bias", factors, rows=True, divided=True)
        scale(f"{mlp}.down_proj", factors, rows=False, divided=False)
    return Checkpoint(architecture=checkpoint.architecture, weights=weights)


def _scaled(weight: Weight, factors: Float32Array, *, rows: bool) -> Weight:
    by_axis = factors[:, np.newaxis] if rows and len(weight.shape) > 1 else factors
    read: Callable[[], Float32Array] = weight.read
    return Weight(weight.shape, lambda: (read() * by_axis).astype(np.float32))
