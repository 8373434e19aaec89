"""A random model of a larger shape, as GGUF in Q4_0: llama.cpp and our engines compute as many numbers of it as of a
real one. It has the vocabulary of the demo's model, and tokens that nothing means behind it."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ops.model.prepare import default_source
from ops.stack.processes import ServiceError
from shared.model.folder import Architecture
from tests.support.servers.llama_server import PROGRAM
from workers.graph.sources.checkpoint import expected_shapes
from workers.graph.sources.gguf import LAYER_TENSORS, TENSORS

_BLOCK: Final = 32
_UNIFORM_DEVIATION: Final = 256 / 12**0.5  # of signed bytes that are equally likely
_TOKENS: Final = "tokenizer.ggml.tokens"
_TYPES: Final = "tokenizer.ggml.token_type"


def _qwen_like(layers: int, hidden: int, intermediate: int, heads: int) -> Architecture:
    """Return the numbers of a Qwen2.5, whose biases a Llama has not."""
    return Architecture(
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=2,
        head_dim=hidden // heads,
        hidden_size=hidden,
        intermediate_size=intermediate,
        vocab_size=151_936,
        max_positions=32_768,
        rope_theta=1e6,
        norm_epsilon=1e-6,
        tied_embedding=True,
    )


SHAPES: Final = {"0.5b": _qwen_like(24, 896, 4_864, 14), "1.5b": _qwen_like(28, 1_536, 8_960, 12)}


def write_shape(architecture: Architecture, target: Path) -> None:
    """Write it in 8 bits, and have llama.cpp make its Q4_0 of that, as for any model. Raises `ServiceError`."""
    quantize = PROGRAM.with_name("llama-quantize")
    if not quantize.is_file():
        raise ServiceError(f"{quantize} is missing; run: ops/setup/llama-server")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="replyline-bench-", dir=target.parent) as workshop:
        eight_bits, four_bits = Path(workshop) / "q8_0.gguf", Path(workshop) / "q4_0.gguf"
        write_gguf(architecture, eight_bits)
        argv = [str(quantize), "--allow-requantize", str(eight_bits), str(four_bits), "Q4_0"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServiceError(f"llama-quantize ended with status {done.returncode}: {done.stderr[-200:]}")
        four_bits.rename(target)


def write_gguf(architecture: Architecture, path: Path) -> None:
    """Write a random Llama, its matrices in Q8_0, with the tokenizer of the demo's model."""
    import gguf

    a, reader, writer = architecture, gguf.GGUFReader(default_source()), gguf.GGUFWriter(path, "llama")
    metadata: dict[str, Any] = {key: entry.contents() for key, entry in reader.fields.items()}
    more = range(len(metadata[_TOKENS]), a.vocab_size)
    changed = {
        "llama.block_count": a.num_layers,
        "llama.context_length": a.max_positions,
        "llama.embedding_length": a.hidden_size,
        "llama.feed_forward_length": a.intermediate_size,
        "llama.attention.head_count": a.num_heads,
        "llama.attention.head_count_kv": a.num_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": a.norm_epsilon,
        "llama.rope.dimension_count": a.head_dim,
        "llama.rope.freq_base": a.rope_theta,
        "llama.vocab_size": a.vocab_size,
        _TOKENS: [*metadata[_TOKENS], *(f"<unused{token_id}>" for token_id in more)],
        _TYPES: [*metadata[_TYPES], *(gguf.TokenType.NORMAL for _ in more)],
    }
    for key, entry in reader.fields.items():
        if key.startswith(("llama.", "tokenizer.")):
            writer.add_key_value(key, changed.get(key, metadata[key]), entry.types[0], entry.types[-1])
    names = {canonical: name for name, canonical in TENSORS.items()}
    of_layer = {canonical: name for name, canonical in LAYER_TENSORS.items()}
    random = np.random.default_rng(1)
    for name, shape in expected_shapes(a).items():
        place = name.split(".", 2)
        full = f"blk.{place[1]}.{of_layer[place[2]]}" if place[0] == "layers" else names[name]
        if len(shape) == 1:
            writer.add_tensor(full, np.ones(shape, np.float32))
        else:
            writer.add_tensor(full, q8_0(random, *shape), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def q8_0(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """Return a matrix whose products with what is of size one are too: a float16 scale, then 32 signed bytes."""
    blocks = random.integers(0, 256, (rows, columns // _BLOCK, 2 + _BLOCK), np.uint8)
    scale = np.float16(columns**-0.5 / _UNIFORM_DEVIATION)
    blocks[..., :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)
