"""The index of `model.native` is accepted only if it is that of the manifest's model, byte by byte."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ModelError
from shared.model.folder import Experts
from tests.support.hostile.lying_files import one_line
from tests.support.models.fixtures import TINY
from workers.graph.native_layout import HEADER, MAGIC, PAGE, VERSION, read_index, section_names, sections, unpackable

FILE = Path("model.native")
SIZES = {name: section.size for name, section in sections(TINY, "int8").items()}
PLACES = {name: [PAGE, size] for name, size in SIZES.items()}
END = PAGE + max(SIZES.values())
INDEX_END = HEADER.size + len(msgspec.json.encode(PLACES)) + 32


def written(places: object = PLACES, *, form: object = "int8", magic: bytes = MAGIC, version: int = VERSION) -> bytes:
    index = msgspec.json.encode({"form": form, "sections": places})
    return HEADER.pack(magic, version, len(index)) + index + bytes(END - HEADER.size - len(index))


def test_sections_come_in_the_order_of_their_names() -> None:
    every = msgspec.structs.replace(TINY, tied_embedding=False, qkv_bias=True, output_bias=True, mlp_bias=True)
    every = msgspec.structs.replace(every, query_key_norm=True)
    mixture = Experts(count=4, chosen=2, width=32, normalized=True, shared_width=32, dense_layers=(0,))
    mixed = msgspec.structs.replace(every, experts=mixture)
    named_here = {name.split(".")[-1] for name in (*sections(every, "int8"), *sections(mixed, "int8"))}
    assert named_here == {name.split(".")[-1] for name in section_names(every.num_layers)}
    for architecture in (TINY, every, mixed):
        named = sections(architecture, "q4")
        assert list(named) == [name for name in section_names(architecture.num_layers) if name in named]


def test_the_sections_of_the_manifests_model_are_found() -> None:
    index = read_index(memoryview(written()), TINY, FILE)
    assert index.form == "int8"
    assert {name: list(place) for name, place in index.places.items()} == PLACES


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "fewer than its header"),
        (written(magic=b"RLNATIVF"), "does not begin with RLNATIVE"),
        (written(version=2), "layout version 2"),
        (HEADER.pack(MAGIC, VERSION, 2**32 - 1) + b"{}", "cut off or too long"),
        (written(form="q5"), "damaged"),
        (written([1]), "damaged"),
        (HEADER.pack(MAGIC, VERSION, 100_000) + b"[" * 100_000, "damaged"),
        (written(PLACES, form="q4"), "has 'away'"),
        (written({**PLACES, "head": [PAGE, 64]}), "has 'head'"),
        (written({name: place for name, place in PLACES.items() if name != "norm"}), "lacks 'norm'"),
        (written({**PLACES, "norm": [PAGE, 252]}), "norm has 252 bytes"),
        (written({**PLACES, "norm": [PAGE + 32, 256]}), "no multiple of 64"),
        (written({**PLACES, "norm": [END - 192, 256]}), "outside the file"),
        (written({**PLACES, "norm": [-64, 256]}), "outside the file"),
        (written({**PLACES, "norm": [2**62, 256]}), "outside the file"),
    ],
)
def test_a_file_that_is_not_of_the_layout_is_refused_in_one_line(data: bytes, fault: str) -> None:
    with pytest.raises(ModelError, match=fault) as caught:
        read_index(data, TINY, FILE)
    line = one_line(caught.value)
    assert "model.native" in line
    assert "replyline model prepare" in line


@given(at=st.integers(0, INDEX_END), to=st.binary(max_size=80), cut=st.integers(0, END))
def test_whatever_is_read_lies_in_the_file(at: int, to: bytes, cut: int) -> None:
    """Hostile bytes are refused, or every section of the model lies in the file, aligned and of its size."""
    data = bytearray(written())
    data[at : at + len(to)] = to
    data = data[: len(data) - cut]
    try:
        places = read_index(bytes(data), TINY, FILE).places
    except ModelError:
        return
    for name, (offset, size) in places.items():
        assert size == SIZES[name]
        assert offset % 64 == 0
        assert 0 <= offset <= len(data) - size


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"hidden_size": 80}, "hidden_size 80 is no multiple of 32"),
        ({"intermediate_size": 100}, "intermediate_size 100 is no multiple of 32"),
        ({"num_heads": 3}, "num_heads * head_dim 48 is no multiple of 32"),
        ({"head_dim": 24}, "head_dim 24 is no multiple of 16"),
    ],
)
def test_a_model_that_cannot_be_packed_is_told_why(changed: dict[str, int], fault: str) -> None:
    other = msgspec.structs.replace(TINY, **changed)
    assert unpackable(TINY) is None
    assert unpackable(other) == fault
    with pytest.raises(ModelError, match="cannot be of this model"):
        read_index(written(), other, FILE)
