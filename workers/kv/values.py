"""Encode a block of KV as bytes: a header of 24 bytes, then the raw tensor `[layers, parts, heads, tokens, dim]`. Pure.

Codecs: `exact` (the engine's own numbers), `fp16`, `int8` (with fp32 scales, one for each token and head, before the
tensor). The last two are for wider floats, `int8` also for bfloat16; other numbers are stored exactly.

A reader knows what to expect, so a header is only compared, and nothing is allocated based on it. The checksum covers
the header, the block's name and the tensor. CRC-32 (3.3 GB/s here, BLAKE2b 0.8) protects against accidents: truncated
or changed bytes, or a wrong name. Anyone who can write to the store can forge it; the worst result is wrong numbers,
all of them finite.
"""

import struct
import zlib
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from workers.engine.kv_layout import BFLOAT16, KvLayout

Codec = Literal["exact", "fp16", "int8"]
Reason = Literal["truncated", "foreign", "version", "codec", "layout", "length", "oversized", "checksum", "not_finite"]

CODECS: Final[tuple[Codec, ...]] = get_args(Codec)
VERSION: Final = 1

_MAGIC: Final = b"RLKV"
_HEADER: Final = struct.Struct("<4sBBBxHHH4sH")  # magic, version, codec, parts, layers, heads, dim, dtype, tokens
_CHECKSUM: Final = struct.Struct("<I")
_START: Final = _HEADER.size + _CHECKSUM.size
_REASONS: Final[tuple[Reason, ...]] = (
    "foreign", "version", "codec", "layout", "layout", "layout", "layout", "layout", "length",
)  # fmt: skip
_SCALE: Final = np.dtype("<f4")
_HALF: Final = np.dtype("<f2")
_BFLOAT16: Final = np.dtype(BFLOAT16)
_INFINITE: Final = {_HALF: 0x7C00, _BFLOAT16: 0x7F80}
_SIGN: Final = 0x8000
_INT8_MAX: Final = 127


class BadBlock(Exception):  # noqa: N818 - an expected outcome: the block is dropped and counted
    """A value that is not the expected block. `reason` is a metric's label."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


def value_bytes(layout: KvLayout, codec: Codec, num_tokens: int) -> int:
    """Return the length of an encoded block of that many tokens."""
    return _START + num_tokens * _payload_bytes_per_token(layout, _effective(codec, layout.numpy_dtype))


def encode(array: NDArray[Any], codec: Codec, *, name: bytes) -> bytes:
    """Return the value of block `name`.

    Args:
        array: `[layers, parts, heads, tokens, dim]`, with any strides.
        codec: the configured codec.
        name: the block's name.

    Raises:
        ValueError: a number is not finite or too large for the codec; such a block must not be stored.
    """
    layers, parts, heads, tokens, dim = array.shape
    layout = KvLayout(layers=layers, parts=parts, heads=heads, dim=dim, dtype=array.dtype.str)
    effective = _effective(codec, layout.numpy_dtype)
    head = _head(layout, effective, tokens)
    if effective == "exact":
        pieces = [np.ascontiguousarray(array, layout.numpy_dtype)]
        finite = _all_finite(pieces[0])
    elif effective == "fp16":
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = [array.astype(_HALF, order="C")]
        finite = _all_finite(pieces[0])
    else:
        wide = _widened(array) if array.dtype == _BFLOAT16 else array
        pieces = _quantized(wide)
        finite = _scales_fit(pieces[0], wide.dtype)
    if not finite:
        raise ValueError(f"KV that is not finite, or too large for {effective}, cannot be stored")
    checksum = _CHECKSUM.pack(_crc(head, name, *(piece.data for piece in pieces)))
    return b"".join((head, checksum, *(piece.data for piece in pieces)))


def decode(
    data: bytes, layout: KvLayout, codec: Codec, num_tokens: int, *, name: bytes, checked: bool = False
) -> NDArray[Any]:
    """Return the array of block `name`, `layout.shape(num_tokens)`; for `exact` and `fp16` a view of `data`.

    Args:
        data: the stored value.
        layout: the engine's KV layout.
        codec: the configured codec.
        num_tokens: tokens in the block.
        name: the block's name.
        checked: this process has encoded or decoded the value before, so only header and length are compared.

    Raises:
        BadBlock: the value is not the expected one.
    """
    effective = _effective(codec, layout.numpy_dtype)
    head = _head(layout, effective, num_tokens)
    payload = _payload(data, head, value_bytes(layout, codec, num_tokens))
    if not checked and _CHECKSUM.unpack_from(data, _HEADER.size) != (_crc(head, name, payload),):
        raise BadBlock("checksum")
    shape = layout.shape(num_tokens)
    if effective != "int8":
        kept = np.frombuffer(payload, _HALF if effective == "fp16" else layout.numpy_dtype).reshape(shape)
        _require(checked or _all_finite(kept))
        return kept
    num_scales = layout.layers * layout.parts * layout.heads * num_tokens
    scales = np.frombuffer(payload, _SCALE, num_scales).reshape(*shape[:-1], 1)
    narrow = layout.numpy_dtype == _BFLOAT16
    _require(checked or _scales_fit(scales, _SCALE if narrow else layout.numpy_dtype))
    steps = np.frombuffer(payload, np.int8, offset=scales.nbytes).reshape(shape)
    if narrow:
        return _narrowed(np.multiply(steps, scales, dtype=_SCALE))
    return np.multiply(steps, scales, dtype=np.promote_types(layout.numpy_dtype, _SCALE)).astype(
        layout.numpy_dtype, copy=False
    )


def _payload(data: bytes, head: bytes, length: int) -> memoryview:
    """Return the part after the header; header and length must match."""
    if len(data) < _START:
        raise BadBlock("truncated")
    view = memoryview(data)
    if view[: _HEADER.size] != head:
        raise BadBlock(_difference(bytes(view[: _HEADER.size]), head))
    if len(data) != length:
        raise BadBlock("truncated" if len(data) < length else "oversized")
    return view[_START:]


def _difference(head: bytes, expected: bytes) -> Reason:
    pairs = zip(_REASONS, _HEADER.unpack(head), _HEADER.unpack(expected), strict=True)
    return next((reason for reason, found, wanted in pairs if found != wanted), "foreign")


def _head(layout: KvLayout, effective: Codec, num_tokens: int) -> bytes:
    code = CODECS.index(effective)
    shape = (layout.parts, layout.layers, layout.heads, layout.dim)
    return _HEADER.pack(_MAGIC, VERSION, code, *shape, layout.dtype.encode(), num_tokens)


def _crc(head: bytes, name: bytes, *pieces: memoryview) -> int:
    checksum = zlib.crc32(name, zlib.crc32(head))
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return checksum


def _effective(codec: Codec, dtype: np.dtype[Any]) -> Codec:
    """Return the effective codec: `exact` if the configured one would not make the numbers smaller or cannot
    represent them."""
    if codec == "int8" and dtype == _BFLOAT16:
        return codec
    if dtype.kind != "f" or (codec == "fp16" and dtype.itemsize <= _HALF.itemsize):
        return "exact"
    return codec


def _payload_bytes_per_token(layout: KvLayout, effective: Codec) -> int:
    if effective == "exact":
        return layout.bytes_per_token
    if effective == "fp16":
        return layout.values_per_token * _HALF.itemsize
    return layout.values_per_token + layout.layers * layout.parts * layout.heads * _SCALE.itemsize


def _quantized(array: NDArray[Any]) -> list[NDArray[Any]]:
    """Return scales `[layers, parts, heads, tokens, 1]` and steps of -127 to 127."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        scales = np.abs(array).max(axis=-1, keepdims=True).astype(_SCALE)
        scales /= np.float32(_INT8_MAX)
        if not _scales_fit(scales, array.dtype):
            return [scales]
        steps = np.divide(array, np.where(scales > 0, scales, np.float32(1)), dtype=np.float32)
    np.rint(steps, out=steps)
    # if the scale is the smallest float, a step could exceed 127
    return [scales, np.clip(steps, -_INT8_MAX, _INT8_MAX, out=steps).astype(np.int8)]


def _scales_fit(scales: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether 127 times each scale fits that dtype; False for NaN."""
    limit = float(np.finfo(np.promote_types(dtype, _HALF) if dtype.itemsize <= _SCALE.itemsize else _SCALE).max)
    return scales.size == 0 or (float(scales.min()) >= 0 and float(scales.max()) <= limit / (_INT8_MAX + 1))


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return bfloat16 as fp32, whose upper half it is."""
    bits: NDArray[Any] = np.left_shift(array, 16, dtype=np.dtype("<u4"))
    return bits.view(_SCALE)


def _narrowed(array: NDArray[Any]) -> NDArray[Any]:
    """Return finite fp32 as bfloat16, rounded to nearest, ties to even."""
    bits: NDArray[Any] = array.view("<u4")
    bits = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return bits.astype(_BFLOAT16)


def _all_finite(array: NDArray[Any]) -> bool:
    if array.size == 0:
        return True
    # compares positive and negative numbers by their bits, without a copy
    if (infinite := _INFINITE.get(array.dtype)) is not None:
        return int(array.view("<i2").max()) < infinite and int(array.view("<u2").max()) < infinite + _SIGN
    if array.dtype.kind != "f":
        return True
    return bool(np.isfinite(array.max()) and np.isfinite(array.min()))  # NaN becomes both


def _require(finite: bool) -> None:
    if not finite:
        raise BadBlock("not_finite")
