"""The decoder's nodes for TensorRT 10.1 to 10.14, of opset 19: attention out of products, KV beside the slots.

None of these has `TensorScatter`, most have no `Attention`. The slots are only read; the step's own keys and values
are outputs, for whoever runs the graph to put them into the slots. Scores of a slot's tokens and of the new ones are
computed apart and laid side by side before the softmax, and the two parts of its weights multiply their values apart:
so no KV is copied in the graph.
"""

from typing import Final

import numpy as np

from workers.graph.sources.checkpoint import Float32Array
from workers.graph.tensorrt_dialect import TensorrtDialect

_END: Final = np.iinfo(np.int64).max


class PrimitiveDialect(TensorrtDialect):
    """Queries that share a key head are rows of one product: no key is repeated."""

    def _look(self) -> None:
        """`visible` `[B, 1, queries a key head * T, max_length + T]`: what is in the slot, and the new up to each.

        Places behind a slot's tokens count as the last position of all, which no query here has reached.
        """
        a, constant, node = self.architecture, self.graph.constant, self.graph.node
        held = node("Less", ["key_positions", "starts"], ["held"])
        beyond = constant("beyond", np.array(self.max_length, np.int64))
        by_slot = node("Where", [held, "key_positions", beyond], ["positions.held"])
        keys = node("Concat", [by_slot, "positions"], ["positions.keys"], axis=1)
        by_key = node("Unsqueeze", [keys, constant("before_keys", np.array([1, 2], np.int64))], ["positions.by_key"])
        times = constant("queries_a_key", np.array([1, a.num_heads // a.num_kv_heads], np.int64))
        queries = node("Tile", ["positions", times], ["positions.queries"])
        around = constant("around_tokens", np.array([1, 3], np.int64))
        by_query = node("Unsqueeze", [queries, around], ["positions.by_query"])
        node("GreaterOrEqual", [by_query, by_key], ["visible"])
        constant("unseen", np.array(np.finfo(self.matrices.dtype).min, self.matrices.dtype))
        for table in ("rotary_cos", "rotary_sin"):
            angles = node("Gather", [table, "positions"], [f"{table}.new"], axis=0)
            node("Unsqueeze", [angles, constant("head_axis", np.array([1], np.int64))], [f"{table}.by_head"])

    def _attended(self, layer: int, query: str, key: str, value: str) -> str:
        a, constant, node = self.architecture, self.graph.constant, self.graph.node
        prefix = f"layers.{layer}.self_attn"
        scale = constant("score_scale", np.array(a.head_dim**-0.5, np.float32))
        scaled = self.matrices.narrow(node("Mul", [query, scale], [f"{prefix}.scaled"]))
        by_key_head = constant("by_key_head", np.array([0, a.num_kv_heads, -1, a.head_dim], np.int64))
        queries = node("Reshape", [scaled, by_key_head], [f"{prefix}.queries"])
        keys = [f"past_key.{layer}", self._told("key", layer, self.matrices.narrow(key))]
        values = [f"past_value.{layer}", self._told("value", layer, value)]
        scores = [
            node(
                "MatMul",
                [queries, node("Transpose", [part], [f"{part}.turned"], perm=[0, 1, 3, 2])],
                [f"{part}.scores"],
            )
            for part in keys
        ]
        every = node("Concat", scores, [f"{prefix}.scores"], axis=-1)
        seen = node("Where", ["visible", every, "unseen"], [f"{prefix}.seen"])
        weights = node("Softmax", [seen], [f"{prefix}.weights"], axis=-1)
        start, middle, end = (constant(f"at.{at}", np.array([at], np.int64)) for at in (0, self.max_length, _END))
        axis = constant("score_axis", np.array([3], np.int64))
        products = [
            node("MatMul", [node("Slice", [weights, *cut, axis], [f"{part}.weights"]), part], [f"{part}.weighted"])
            for part, cut in zip(values, ((start, middle), (middle, end)), strict=True)
        ]
        both = node("Add", products, [f"{prefix}.both"])
        by_head = constant("by_query_head", np.array([0, a.num_heads, -1, a.head_dim], np.int64))
        return node("Reshape", [both, by_head], [f"{prefix}.by_head"])

    def _told(self, part: str, layer: int, heads: str) -> str:
        return self.graph.node("Identity", [heads], [f"present_{part}.{layer}"])

    def _rotated(self, heads: str) -> str:
        """Each pair `(i, i + head_dim / 2)`."""
        node = self.graph.node
        half = self.graph.constant("half_heads", np.full(2, self.architecture.head_dim // 2, np.int64))
        first, second = f"{heads}.first", f"{heads}.second"
        node("Split", [heads, half], [first, second], axis=-1)

        def times(part: str, table: str) -> str:
            return node("Mul", [part, f"{table}.by_head"], [f"{part}.{table}"])

        turned = [
            node("Sub", [times(first, "rotary_cos"), times(second, "rotary_sin")], [f"{first}.turned"]),
            node("Add", [times(second, "rotary_cos"), times(first, "rotary_sin")], [f"{second}.turned"]),
        ]
        return node("Concat", turned, [f"{heads}.rotated"], axis=-1)

    def _rms_norm(self, name: str, scale: Float32Array, value: str) -> str:
        constant, node = self.graph.constant, self.graph.node
        self.graph.weight(name, scale)
        squares = node("Mul", [value, value], [f"{name}.squares"])
        mean = node("ReduceMean", [squares, constant("last_axis", np.array([-1], np.int64))], [f"{name}.mean"])
        epsilon = constant("norm_epsilon", np.array(self.architecture.norm_epsilon, np.float32))
        size = node("Sqrt", [node("Add", [mean, epsilon], [f"{name}.mean_above_0"])], [f"{name}.size"])
        return node("Mul", [node("Div", [value, size], [f"{name}.even"]), name], [f"{name}.out"])
