"""GGUF files of small models."""

from collections.abc import Callable
from pathlib import Path

import gguf
import msgspec
import numpy as np

from workers.graph.sources.safetensors import SafetensorsSource


def write_gguf(
    path: Path, folder: Path, *, change: Callable[[gguf.GGUFWriter], None] | None = None, kind: str = "F32"
) -> None:
    """The same model as in a Hugging Face folder, the way llama.cpp's converter lays it out: layers' matrices of
    `kind`, all else in float32."""
    checkpoint = SafetensorsSource.open(folder).checkpoint()
    a = checkpoint.architecture
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(a.num_layers)
    writer.add_context_length(a.max_positions)
    writer.add_embedding_length(a.hidden_size)
    writer.add_feed_forward_length(a.intermediate_size)
    writer.add_head_count(a.num_heads)
    writer.add_head_count_kv(a.num_kv_heads)
    writer.add_key_length(a.head_dim)
    writer.add_rope_freq_base(a.rope_theta)
    writer.add_layer_norm_rms_eps(a.norm_epsilon)
    tokens = sorted(document_vocab(folder).items(), key=lambda item: item[1])
    tokens += [("ab", 259), *((f"<|unused{i}|>", i) for i in range(260, a.vocab_size))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([3 if i < 3 or i > 259 else 1 for i in range(a.vocab_size)])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, a.num_layers)
    for name in checkpoint.weights:
        tensor = checkpoint.read(name)
        heads = {"q_proj": a.num_heads, "k_proj": a.num_kv_heads}.get(name.rsplit(".", 1)[-1])
        if heads:
            tensor = tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
        stored = gguf.GGMLQuantizationType[kind if name.startswith("layers.") and tensor.ndim == 2 else "F32"]
        data = gguf.quantize(np.ascontiguousarray(tensor), stored)
        writer.add_tensor(
            f"{names.get_name(name if name == 'lm_head' else f'model.{name}')}.weight", data, raw_dtype=stored
        )
    if change is not None:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def document_vocab(folder: Path) -> dict[str, int]:
    vocab: dict[str, int] = msgspec.json.decode((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    return vocab
