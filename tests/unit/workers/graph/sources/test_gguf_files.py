"""A GGUF file that lies is refused in one line, before anything in it is reserved or believed."""

import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from shared.errors import ModelError
from shared.model.tokenizer import Tokenizer, _byte_alphabet
from tests.support.hostile.lying_files import numpy_objects, one_line, pickled, torch_zip
from workers.graph.rotary import frequencies
from workers.graph.sources.gguf import GgufSource
from workers.graph.sources.opening import open_source, tokenizer_definition


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def field(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def gguf(*parts: bytes, tensors: int = 0, fields: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields) + b"".join(parts)


def array(kind: int, length: int) -> bytes:
    return struct.pack("<IQ", kind, length)


def tensor(*dims: int, kind: int = 0, offset: int = 0, name: str = "a", num_dims: int | None = None) -> bytes:
    count = len(dims) if num_dims is None else num_dims
    return (
        text(name) + struct.pack("<I", count) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
    )


def padded(data: bytes) -> bytes:
    """Up to where the tensors begin."""
    return data + b"\0" * (-len(data) % 32)


STRING, ARRAY, UINT8, UINT32 = 8, 9, 0, 4
GGUF: dict[str, bytes | Callable[[Path], bytes]] = {
    "a pickle": pickled,
    "what torch.save writes": torch_zip,
    "an array of objects": numpy_objects,
    "a pickle behind the right beginning": lambda mark: b"GGUF" + pickled(mark),
    "nothing": b"",
    "three bytes": b"GGU",
    "no more than the beginning": b"GGUF",
    "the old format": b"ggml" + b"\0" * 64,
    "a version to come": gguf(version=99),
    "version 0": gguf(version=0),
    "the other byte order": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^60 fields": gguf(fields=2**60),
    "2^64 - 1 tensors": gguf(tensors=2**64 - 1),
    "more fields than there are": gguf(field("a", UINT8, b"\1"), fields=2),
    "a key of 2^60 bytes": gguf(struct.pack("<Q", 2**60) + b"a" * 64, fields=1),
    "a text of 2^60 bytes": gguf(field("a", STRING, struct.pack("<Q", 2**60)), fields=1),
    "a text of 2^64 - 1 bytes": gguf(field("a", STRING, struct.pack("<Q", 2**64 - 1)), fields=1),
    "an array of 2^60 bytes": gguf(field("a", ARRAY, array(UINT8, 2**60)), fields=1),
    "an array of 2^40 numbers": gguf(field("a", ARRAY, array(UINT32, 2**40) + b"\0" * 64), fields=1),
    "an array of 2^60 texts": gguf(field("a", ARRAY, array(STRING, 2**60) + text("x")), fields=1),
    "an array of arrays": gguf(field("a", ARRAY, array(ARRAY, 1) * 5_000), fields=1),
    "a type that nobody knows": gguf(field("a", 77, b"\0" * 8), fields=1),
    "an array of a type that nobody knows": gguf(field("a", ARRAY, array(77, 1)), fields=1),
    "a key that is no text": gguf(text(b"\xff\xfe") + struct.pack("<IB", UINT8, 1), fields=1),
    "a key twice": gguf(field("a", UINT8, b"\1") * 2, fields=2),
    "2^31 dimensions": gguf(tensor(num_dims=2**31), tensors=1),
    "dimensions that overflow": gguf(tensor(2**33, 2**33), tensors=1),
    "dimensions that overflow to one": gguf(tensor(2**63 + 1, 2, 2**63 + 1), tensors=1),
    "a tensor of 2^40 elements": gguf(tensor(2**40), tensors=1),
    "a tensor behind the end": gguf(tensor(4, offset=2**50) + b"\0" * 64, tensors=1),
    "a tensor that is cut off": gguf(tensor(64) + b"\0" * 64, tensors=1),
    "a tensor of a type that nobody knows": gguf(tensor(4, kind=999) + b"\0" * 64, tensors=1),
    "a tensor twice": gguf(tensor(4) * 2 + b"\0" * 128, tensors=2),
    "an alignment of 0": gguf(field("general.alignment", UINT32, b"\0" * 4), fields=1),
}
GGUF_OF_NOTHING: dict[str, bytes] = {
    "no architecture": gguf(field("a", UINT8, b"\1"), fields=1),
    "an architecture that is a list": gguf(
        field("general.architecture", ARRAY, array(STRING, 1) + text("llama")), fields=1
    ),
    "no heads": gguf(
        field("general.architecture", STRING, text("llama")),
        field("llama.attention.head_count", UINT32, struct.pack("<I", 0)),
        field("llama.embedding_length", UINT32, struct.pack("<I", 64)),
        fields=3,
    ),
}


def refuse_gguf(what: str, base: Path) -> None:
    made = GGUF[what]
    path, mark = base / "model.gguf", base / "mark"
    path.write_bytes(made if isinstance(made, bytes) else made(mark))
    for read in (GgufSource.open, open_source):
        with pytest.raises(ModelError) as caught:
            read(path)
        one_line(caught.value)
    assert not mark.exists(), "it was unpickled"


@pytest.mark.parametrize("what", GGUF)
def test_gguf_that_lies_is_refused(tmp_path: Path, what: str) -> None:
    """The check takes no longer than reading the file, even if the file claims huge sizes."""
    refuse_gguf(what, tmp_path)


def test_gguf_that_does_not_lie_is_read(tmp_path: Path) -> None:
    """The control: what the others were made from."""
    path = tmp_path / "model.gguf"
    path.write_bytes(padded(gguf(field("a", UINT8, b"\1"), tensor(4), fields=1, tensors=1)) + b"\0" * 24)
    opened = GgufSource.open(path)
    assert (opened.metadata["a"], list(opened.tensors)) == (1, ["a"])


@pytest.mark.parametrize("what", GGUF_OF_NOTHING)
def test_gguf_that_describes_no_model_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(padded(GGUF_OF_NOTHING[what]))
    with pytest.raises(ModelError) as caught:
        open_source(path)
    one_line(caught.value)


class Tensor:
    """A vector as gguf's reader has it."""

    def __init__(self, *values: float) -> None:
        self.data, self.tensor_type = np.array(values, np.float32), GGMLQuantizationType.F32


def llama(tensors: Mapping[str, Tensor] | None = None, **metadata: object) -> GgufSource:
    """A Llama 3 file with a head of 4, whose vocabulary is the bytes, `he` and the words of digits."""
    alphabet = [*_byte_alphabet().values()]
    tokens = [*alphabet, "he", "12", "123", "<|eot_id|>"]
    given = {
        "general.architecture": "llama",
        "llama.attention.head_count": 2,
        "llama.embedding_length": 8,
        "llama.block_count": 1,
        "llama.feed_forward_length": 8,
        "llama.context_length": 64,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.merges": ["h e", "1 2", "12 3"],
    }
    return GgufSource(Path("llama-3.gguf"), given | metadata, tensors or {})


def test_llama_3_vocabulary_splits_digits_by_three() -> None:
    tokenizer = Tokenizer(tokenizer_definition(llama()))
    ids = tokenizer.encode_text("he 1234")
    assert [tokenizer.token_bytes(each) for each in ids] == [b"he", b" ", b"123", b"4"]
    assert tokenizer.special_id("<|eot_id|>") == 259


def test_llama_3_1_rotates_each_pair_by_its_factor() -> None:
    plain = frequencies(llama().architecture)
    scaled = frequencies(llama({"rope_freqs.weight": Tensor(1.0, 8.0)}).architecture)
    assert scaled == pytest.approx(plain / [1.0, 8.0])
    linear = llama(**{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    assert frequencies(linear.architecture) == pytest.approx(plain / 4.0)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (llama(**{"tokenizer.ggml.pre": "tekken"}), "tokenizer gpt2/tekken of llama-3.gguf is not supported"),
        (llama({"rope_freqs.weight": Tensor(1.0)}), "rope_freqs.weight of llama-3.gguf is damaged"),
        (llama({"rope_freqs.weight": Tensor(1.0, 0.0)}), "rope_freqs.weight of llama-3.gguf is damaged"),
        (llama(**{"llama.rope.scaling.type": "yarn"}), "rotary scaling 'yarn' of llama-3.gguf is not supported"),
    ],
)
def test_what_a_llama_file_has_of_another_kind_is_named(source: GgufSource, line: str) -> None:
    with pytest.raises(ModelError, match=line):
        _ = (source.architecture, tokenizer_definition(source))
