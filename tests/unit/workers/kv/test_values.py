"""Encoded KV: a stored value is restored, and any other value under its name is refused."""

import struct
import zlib
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from workers.engine.kv_layout import BFLOAT16, KvLayout
from workers.kv.values import CODECS, VERSION, BadBlock, Codec, decode, encode, value_bytes

NAME = bytes(range(16))
HEADER_BYTES = 24
LAYOUTS = st.builds(
    KvLayout,
    layers=st.integers(1, 3),
    parts=st.integers(1, 2),
    heads=st.integers(1, 3),
    dim=st.integers(1, 8),
    dtype=st.sampled_from(["float32", "float16", "float64", "<u2", "uint64", "int8"]),
)
TOKENS = st.integers(1, 9)
NOT_FINITE = (np.nan, np.inf, -np.inf)
LAYOUT = KvLayout(layers=2, parts=2, heads=3, dim=4, dtype="float32")


def array_of(layout: KvLayout, tokens: int, seed: int, scale: float = 1.0) -> NDArray[Any]:
    numbers = np.random.default_rng(seed).standard_normal(layout.shape(tokens)) * scale
    if layout.dtype == BFLOAT16:
        return (numbers.astype("<f4").view("<u4") >> 16).astype(BFLOAT16)
    if layout.numpy_dtype.kind != "f":
        return np.random.default_rng(seed).integers(0, 100, layout.shape(tokens)).astype(layout.numpy_dtype)
    return numbers.astype(layout.numpy_dtype)


def as_float(bits: NDArray[Any]) -> NDArray[Any]:
    return (bits.astype("<u4") << 16).view("<f4")


def reason_of(data: bytes, layout: KvLayout = LAYOUT, codec: Codec = "fp16", tokens: int = 5) -> str:
    with pytest.raises(BadBlock) as error:
        decode(data, layout, codec, tokens, name=NAME)
    return error.value.reason


def with_checksum(head: bytes, payload: bytes) -> bytes:
    """Return a value with a valid checksum, as an attacker who knows the format could write it."""
    checksum = zlib.crc32(payload, zlib.crc32(NAME, zlib.crc32(head)))
    return head + struct.pack("<I", checksum) + payload


@given(layout=LAYOUTS, tokens=TOKENS, seed=st.integers(0, 99), codec=st.sampled_from(CODECS))
def test_what_was_kept_comes_back_within_the_codecs_precision(
    layout: KvLayout, tokens: int, seed: int, codec: Codec
) -> None:
    array = array_of(layout, tokens, seed)
    value = encode(array, codec, name=NAME)
    assert len(value) == value_bytes(layout, codec, tokens)
    decoded = decode(value, layout, codec, tokens, name=NAME)
    assert decoded.shape == layout.shape(tokens)
    if codec == "int8" and layout.dtype == BFLOAT16:
        assert decoded.dtype == layout.numpy_dtype
        array, decoded = as_float(array), as_float(decoded)
        step = np.abs(array).max(axis=-1, keepdims=True) / 127
        assert (np.abs(decoded - array) <= step * 0.51 + np.abs(array) / 128).all()
    elif codec == "exact" or layout.numpy_dtype.kind != "f":
        assert decoded.dtype == layout.numpy_dtype
        np.testing.assert_array_equal(decoded, array)
    elif codec == "fp16":
        assert decoded.dtype == np.float16
        np.testing.assert_array_equal(decoded, array.astype(np.float16))
    else:
        assert decoded.dtype == layout.numpy_dtype
        step = np.abs(array).max(axis=-1, keepdims=True).astype(np.float64) / 127
        assert (np.abs(decoded.astype(np.float64) - array) <= step * 0.51 + 2e-3 * (layout.dtype == "<f2")).all()


def test_every_half_precision_number_comes_back() -> None:
    """All 63,488 finite ones, the subnormal ones and both zeros among them."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    layout = KvLayout(layers=1, parts=1, heads=1, dim=1024, dtype="float32")
    array = halves.astype(np.float32).reshape(layout.shape(len(halves) // 1024))
    tokens = array.shape[3]
    decoded = decode(encode(array, "fp16", name=NAME), layout, "fp16", tokens, name=NAME)
    assert decoded.tobytes() == halves.tobytes()


def test_every_bfloat16_number_comes_back_and_none_that_is_not_finite_is_kept_or_comes_out() -> None:
    layout = KvLayout(layers=1, parts=1, heads=1, dim=1, dtype=BFLOAT16)
    head = encode(np.zeros(layout.shape(1), BFLOAT16), "fp16", name=NAME)[:20]
    for number in np.arange(2**16, dtype=BFLOAT16):
        array = number.reshape(layout.shape(1))
        if np.isfinite(as_float(array)).all():
            assert decode(encode(array, "fp16", name=NAME), layout, "fp16", 1, name=NAME) == array
        else:
            with pytest.raises(ValueError, match="finite"):
                encode(array, "fp16", name=NAME)
            assert reason_of(with_checksum(head, number.tobytes()), layout, tokens=1) == "not_finite"


@given(tokens=TOKENS, start=st.integers(0, 5), seed=st.integers(0, 99), codec=st.sampled_from(CODECS))
def test_a_block_is_written_from_its_place_in_a_longer_array(tokens: int, start: int, seed: int, codec: Codec) -> None:
    whole = array_of(LAYOUT, start + tokens + 2, seed)
    part = whole[:, :, :, start : start + tokens]
    assert encode(part, codec, name=NAME) == encode(part.copy(), codec, name=NAME)


@given(codec=st.sampled_from(CODECS), number=st.sampled_from(NOT_FINITE), at=st.integers(0, 239))
def test_what_is_not_finite_is_not_kept(codec: Codec, number: float, at: int) -> None:
    array = array_of(LAYOUT, 5, 1)
    array.flat[at] = number
    with pytest.raises(ValueError, match="finite"):
        encode(array, codec, name=NAME)


@pytest.mark.parametrize(("codec", "number"), [("fp16", 65_520.0), ("fp16", -1e9), ("int8", 3.4e38)])
def test_what_the_codec_cannot_hold_is_not_kept(codec: Codec, number: float) -> None:
    array = array_of(LAYOUT, 5, 1)
    array[0, 0, 0, 0, 0] = number
    with pytest.raises(ValueError, match=f"too large for {codec}"):
        encode(array, codec, name=NAME)


@given(codec=st.sampled_from(CODECS), more=st.binary(min_size=1, max_size=99), data=st.data())
def test_a_value_cut_anywhere_is_truncated_and_with_more_behind_it_oversized(
    codec: Codec, more: bytes, data: st.DataObject
) -> None:
    value = encode(array_of(LAYOUT, 5, 2), codec, name=NAME)
    assert reason_of(value[: data.draw(st.integers(0, len(value) - 1))], codec=codec) == "truncated"
    assert reason_of(value + more, codec=codec) == "oversized"


def test_a_right_value_under_another_name_or_of_another_version_is_refused() -> None:
    assert reason_of(encode(array_of(LAYOUT, 5, 4), "fp16", name=b"another name ...")) == "checksum"
    value = encode(array_of(LAYOUT, 5, 6), "fp16", name=NAME)
    assert reason_of(value[:4] + bytes([VERSION + 1]) + value[5:]) == "version"


@given(codec=st.sampled_from(CODECS), data=st.data())
def test_a_value_with_any_bit_changed_is_refused(codec: Codec, data: st.DataObject) -> None:
    value = bytearray(encode(array_of(LAYOUT, 5, 3), codec, name=NAME))
    bit = data.draw(st.integers(0, 8 * len(value) - 1))
    value[bit // 8] ^= 1 << bit % 8
    reason = reason_of(bytes(value), codec=codec)
    assert (reason == "checksum") == (bit // 8 >= HEADER_BYTES - 4)


@given(data=st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert reason_of(data) in ("truncated", "foreign")


@given(head=st.binary(min_size=16, max_size=16), payload=st.binary(max_size=300))
def test_any_header_is_refused_though_its_checksum_is_right(head: bytes, payload: bytes) -> None:
    head = b"RLKV" + head
    assume(head != encode(array_of(LAYOUT, 5, 2), "fp16", name=NAME)[:20])
    assert reason_of(with_checksum(head, payload)) in ("version", "codec", "layout", "length", "foreign")


@pytest.mark.parametrize(
    ("layout", "codec", "tokens", "reason"),
    [
        (KvLayout(layers=3, parts=2, heads=3, dim=4, dtype="float32"), "fp16", 5, "layout"),
        (KvLayout(layers=2, parts=1, heads=3, dim=4, dtype="float32"), "fp16", 5, "layout"),
        (KvLayout(layers=2, parts=2, heads=4, dim=3, dtype="float32"), "fp16", 5, "layout"),
        (KvLayout(layers=2, parts=2, heads=3, dim=4, dtype="float64"), "fp16", 5, "layout"),
        (LAYOUT, "int8", 5, "codec"),
        (LAYOUT, "fp16", 6, "length"),
        (LAYOUT, "fp16", 65_535, "length"),
    ],
)
def test_a_block_of_another_kind_is_refused_by_what_differs(
    layout: KvLayout, codec: Codec, tokens: int, reason: str
) -> None:
    small = KvLayout(layers=layout.layers, parts=layout.parts, heads=layout.heads, dim=layout.dim, dtype=layout.dtype)
    value = encode(array_of(small, min(tokens, 6), 5), codec, name=NAME)
    if tokens > 6:  # claims more tokens than any cache holds
        value = with_checksum(value[:18] + struct.pack("<H", tokens), value[HEADER_BYTES:])
    assert reason_of(value) == reason


@pytest.mark.parametrize(
    ("codec", "dtype", "number"),
    [
        *product(("exact", "int8"), ("<f4",), NOT_FINITE),
        *product(("fp16",), ("<f2",), NOT_FINITE),
        ("int8", "<f4", 3e38),
    ],
)
def test_numbers_that_are_not_finite_never_come_out(codec: Codec, dtype: str, number: float) -> None:
    """An attacker who knows the format could plant them; in 8 bits the first four bytes are a scale."""
    value = encode(array_of(LAYOUT, 5, 7), codec, name=NAME)
    bad = np.array(number, dtype).tobytes()
    payload = bad + value[HEADER_BYTES + len(bad) :]
    assert reason_of(with_checksum(value[:20], payload), codec=codec) == "not_finite"


def test_a_value_checked_before_is_not_summed_again_but_still_compared() -> None:
    value = bytearray(encode(array_of(LAYOUT, 5, 9), "fp16", name=NAME))
    expected = decode(bytes(value), LAYOUT, "fp16", 5, name=NAME)
    value[20:24] = bytes(4)
    np.testing.assert_array_equal(decode(bytes(value), LAYOUT, "fp16", 5, name=NAME, checked=True), expected)
    with pytest.raises(BadBlock, match="length"):
        decode(bytes(value), LAYOUT, "fp16", 4, name=NAME, checked=True)


@given(one=LAYOUTS, other=LAYOUTS)
def test_layouts_are_described_alike_exactly_where_they_are_equal(one: KvLayout, other: KvLayout) -> None:
    assert (one.describe() == other.describe()) == (one == other)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"layers": 0}, "layers is 0; give 1 to 65535"),
        ({"parts": 256}, "parts is 256; give 1 to 255"),
        ({"dim": 70_000}, "dim is 70000; give 1 to 65535"),
        ({"dtype": "O"}, "dtype is 'O'; give floats or integers"),
    ],
)
def test_a_layout_that_no_engine_has_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KvLayout(**{"layers": 1, "parts": 1, "heads": 1, "dim": 1, "dtype": "<u8", **changed})
