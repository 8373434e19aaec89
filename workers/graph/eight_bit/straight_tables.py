"""A turned decoder's tables, stored as they were before they were turned.

There their rows may lie on the grid of a GGUF's 8 bits, which blocks of 32 then hold as they are; turned they lie on
none. What is looked up is turned when it comes. Of the logits, which whole rows of 8 bits make, the few largest are
computed again in float32, of rows that are looked up: a step reads no more than these.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.eight_bit.matrices import Int8Matrices
from workers.graph.eight_bit.turned import turning
from workers.graph.sources.checkpoint import Checkpoint

# Tokens of which the logits are computed again. Rounding moves a logit by about a twentieth: the likeliest token is
# among them unless as many others are as near to it.
_CANDIDATES: Final = 8


@dataclass(slots=True)
class StraightTables:
    """Of `checkpoint`, of which the decoder that is written is the turned one (`workers/graph/eight_bit/turned.py`)."""

    graph: GraphBuilder
    blocks: Int8Matrices
    checkpoint: Checkpoint
    _head: str = field(default="", init=False)

    def store_embedding(self, name: str) -> None:
        """Store the embedding as `name`, for `look_up`."""
        self.blocks.store_table(name, self.checkpoint.read("embed_tokens"), projects=False)
        self._head = name
        size = self.checkpoint.architecture.hidden_size
        self.graph.weight("turning", turning(size).astype(np.float32))

    def store_head(self, name: str) -> None:
        """Store the rows of the head, which the decoder calls `name`, for `correct`; tied, they are the embedding's."""
        if not self.checkpoint.architecture.tied_embedding:
            self._head = f"{name}.straight"
            self.blocks.store_table(self._head, self.checkpoint.read("lm_head"), projects=False)
        # The norm's scales, which the turned head has in it.
        scaled = turning(self.checkpoint.architecture.hidden_size).T * self.checkpoint.read("norm")
        self.graph.weight("turning_back", scaled.astype(np.float32))

    def look_up(self, table: str, indices: str, output: str) -> str:
        """The turned embedding's rows of `indices`, as value `output` `[batch, tokens, hidden]`."""
        straight = self.blocks.look_up(table, indices, f"{output}.straight")
        return self._multiplied(straight, "turning", output)

    def correct(self, logits: str, normed: str, output: str) -> str:
        """`logits` `[batch, vocabulary]` of `normed` `[batch, hidden]`, the largest of each row computed again."""
        node, constant = self.graph.node, self.graph.constant
        count = min(_CANDIDATES, self.checkpoint.architecture.vocab_size)
        largest = constant("candidates", np.array([count], np.int64))
        node("TopK", [logits, largest], [f"{output}.largest", f"{output}.candidates"], axis=1, sorted=0)
        rows = self.blocks.look_up(self._head, f"{output}.candidates", f"{output}.rows")
        scaled = self._multiplied(normed, "turning_back", f"{output}.scaled")
        last = constant("last_axis", np.array([-1], np.int64))
        column = node("Unsqueeze", [scaled, last], [f"{output}.column"])
        products = node("MatMul", [rows, column], [f"{output}.products"])
        exact = node("Squeeze", [products, last], [f"{output}.exact"])
        return node("ScatterElements", [logits, f"{output}.candidates", exact], [output], axis=1)

    def _multiplied(self, value: str, matrix: str, output: str) -> str:
        """`value` times a weight. One row alone is added up in another order than many: none is ever alone here."""
        both = self.graph.node("Concat", [value, value], [f"{output}.twice"], axis=0)
        product = self.graph.node("MatMul", [both, matrix], [f"{output}.product"])
        self.graph.node("Split", [product], [output, f"{output}.again"], axis=0, num_outputs=2)
        return output
