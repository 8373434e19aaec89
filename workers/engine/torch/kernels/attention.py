"""Attention of one new token a row over the slots, with its rotation, its head norms, and its way into the slot.

A row's context is cut into parts of `_PART` places, each a program of its own (split over context, as FlashDecoding:
https://crfm.stanford.edu/2023/10/12/flashdecoding.html), so one long row keeps a whole GPU busy. The program that comes
last puts the parts together, in their order. Query heads that share a head of keys are one tile: keys are read once.
Which places a part has depends on nothing but the row's own length, so its numbers are the same in any batch.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from workers.engine.torch.kernels.launch import launch

_PART: Final = 256
_PLACES: Final = 64  # of a part, at a time
_FEWEST: Final = 16  # of the tensor cores' tiles


@dataclass(frozen=True, slots=True)
class Parts:
    """What the parts of a context have found: `sums` `[rows, key heads, parts, queries, head]`, `peaks` and `masses`
    `[rows, key heads, parts, queries]`, all float32; `arrivals` int32 `[rows, key heads]` is 0 between kernels."""

    sums: Tensor
    peaks: Tensor
    masses: Tensor
    arrivals: Tensor


def parts_for(rows: int, *, key_heads: int, group: int, head_dim: int, capacity: int, device: torch.device) -> Parts:
    """Room for `rows` rows of up to `capacity` places."""
    count = triton.cdiv(capacity, _PART)
    queries, width = max(triton.next_power_of_2(group), _FEWEST), triton.next_power_of_2(head_dim)
    kinds = {"dtype": torch.float32, "device": device}
    return Parts(
        torch.empty((rows, key_heads, count, queries, width), **kinds),
        torch.empty((rows, key_heads, count, queries), **kinds),
        torch.empty((rows, key_heads, count, queries), **kinds),
        torch.zeros((rows, key_heads), dtype=torch.int32, device=device),
    )


@triton.jit
def _turned_heads(
    at,
    inside,
    norm,
    cosine,
    sine,
    epsilon,
    HEAD: tl.constexpr,
    HALF: tl.constexpr,
    NORMED: tl.constexpr,
):
    """Heads `[n, half]` twice: their first and second halves, normed where they are, and turned by one angle a pair."""
    half = tl.arange(0, HALF)
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + HEAD // 2, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        by = tl.rsqrt(tl.sum(first * first + second * second, axis=1) / HEAD + epsilon)[:, None]
        first = first * by * tl.load(norm + half, mask=half < HEAD // 2, other=0.0)[None, :]
        second = second * by * tl.load(norm + HEAD // 2 + half, mask=half < HEAD // 2, other=0.0)[None, :]
    return first * cosine - second * sine, second * cosine + first * sine


@triton.jit
def _add_places(
    peak,
    mass,
    total,
    q_first,
    q_second,
    keys,
    values,
    start,
    end,
    scale,
    HEAD: tl.constexpr,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Attend to places `start` to `end` of a slot, on top of what is found so far."""
    kind: tl.constexpr = keys.dtype.element_ty
    half, width = tl.arange(0, HALF), tl.arange(0, WIDTH)
    for first in range(start, end, PLACES):
        place = first + tl.arange(0, PLACES)
        seen = place < end
        at = keys + place[None, :] * HEAD + half[:, None]
        inside = (half < HEAD // 2)[:, None] & seen[None, :]
        score = tl.dot(q_first, tl.load(at, mask=inside, other=0.0), input_precision="ieee")
        score = tl.dot(q_second, tl.load(at + HEAD // 2, mask=inside, other=0.0), score, input_precision="ieee")
        score = tl.where(seen[None, :], score * scale, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(peak - higher)
        inside = seen[:, None] & (width < HEAD)[None, :]
        value = tl.load(values + place[:, None] * HEAD + width[None, :], mask=inside, other=0.0)
        total = tl.dot(weight.to(kind), value, total * fade[:, None], input_precision="ieee")
        mass = mass * fade + tl.sum(weight, axis=1)
        peak = higher
    return peak, mass, total


@triton.jit
def _put_together(sums, peaks, masses, count, QUERIES: tl.constexpr, WIDTH: tl.constexpr):
    """What `count` parts have found, as one: `[queries, width]`."""
    query, width = tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    peak = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((QUERIES,), dtype=tl.float32)
    total = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    for part in range(count):
        found = part * QUERIES
        theirs = tl.load(peaks + found + query, cache_modifier=".cg")
        higher = tl.maximum(peak, theirs)
        fade, by = tl.exp(peak - higher), tl.exp(theirs - higher)
        part_total = tl.load(sums + (found + query)[:, None] * WIDTH + width[None, :], cache_modifier=".cg")
        total = total * fade[:, None] + part_total * by[:, None]
        mass = mass * fade + tl.load(masses + found + query, cache_modifier=".cg") * by
        peak = higher
    return total / mass[:, None]


@triton.jit
def _attend(
    packed,
    keys,
    values,
    past,
    cosines,
    sines,
    query_norm,
    key_norm,
    out,
    sums,
    peaks,
    masses,
    arrivals,
    capacity,
    scale,
    epsilon,
    most_parts,
    KEY_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD: tl.constexpr,
    QUERIES: tl.constexpr,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    PART: tl.constexpr,
    PLACES: tl.constexpr,
    NORMED: tl.constexpr,
    PDL: tl.constexpr,
):
    part, head, row = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    kind: tl.constexpr = keys.dtype.element_ty
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    length = tl.load(past + row).to(tl.int32)
    owner = length // PART  # the part into which the new token falls
    if length >= capacity - 1 or part > owner:  # a row that only pads the step, or a part that is empty
        return
    half, query, width = tl.arange(0, HALF), tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    in_half, in_width = half < HEAD // 2, width < HEAD
    cosine = tl.load(cosines + length * (HEAD // 2) + half, mask=in_half, other=0.0)[None, :]
    sine = tl.load(sines + length * (HEAD // 2) + half, mask=in_half, other=0.0)[None, :]
    given = packed + row * (KEY_HEADS * (GROUP + 2)) * HEAD
    heads = given + head * GROUP * HEAD + query[:, None] * HEAD + half[None, :]
    inside = (query < GROUP)[:, None] & in_half[None, :]
    q_first, q_second = _turned_heads(heads, inside, query_norm, cosine, sine, epsilon, HEAD, HALF, NORMED)
    q_first, q_second = q_first.to(kind), q_second.to(kind)
    slot = (row * KEY_HEADS + head) * capacity * HEAD
    peak = tl.full((QUERIES,), float("-inf"), dtype=tl.float32)
    mass = tl.zeros((QUERIES,), dtype=tl.float32)
    total = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    if part == owner:
        key = given + (KEY_HEADS * GROUP + head) * HEAD + half[None, :]
        k_first, k_second = _turned_heads(key, in_half[None, :], key_norm, cosine, sine, epsilon, HEAD, HALF, NORMED)
        k_first, k_second = k_first.to(kind), k_second.to(kind)
        value = tl.load(given + (KEY_HEADS * (GROUP + 1) + head) * HEAD + width, mask=in_width, other=0.0)
        new = slot + length * HEAD
        tl.store(keys + new + half[None, :], k_first, mask=in_half[None, :])
        tl.store(keys + new + HEAD // 2 + half[None, :], k_second, mask=in_half[None, :])
        tl.store(values + new + width, value, mask=in_width)
        score = q_first.to(tl.float32) * k_first.to(tl.float32) + q_second.to(tl.float32) * k_second.to(tl.float32)
        peak = tl.sum(score, axis=1) * scale
        mass += 1.0
        total += value.to(tl.float32)[None, :]
    start, end = part * PART, min(part * PART + PART, length)
    peak, mass, total = _add_places(
        peak, mass, total, q_first, q_second, keys + slot, values + slot, start, end, scale, HEAD, HALF, WIDTH, PLACES
    )
    place = out + (row * KEY_HEADS + head) * GROUP * HEAD + query[:, None] * HEAD + width[None, :]
    inside = (query < GROUP)[:, None] & in_width[None, :]
    if owner == 0:
        tl.store(place, (total / mass[:, None]).to(kind), mask=inside)
        return
    first = (row * KEY_HEADS + head) * most_parts * QUERIES
    mine = first + part * QUERIES + query
    tl.store(sums + mine[:, None] * WIDTH + width[None, :], total)
    tl.store(peaks + mine, peak)
    tl.store(masses + mine, mass)
    tl.debug_barrier()  # every thread's part is written before one of them says so
    if tl.atomic_add(arrivals + row * KEY_HEADS + head, 1, sem="acq_rel") == owner:
        tl.store(arrivals + row * KEY_HEADS + head, 0)
        whole = _put_together(sums + first * WIDTH, peaks + first, masses + first, owner + 1, QUERIES, WIDTH)
        tl.store(place, whole.to(kind), mask=inside)


def attend(
    packed: Tensor,
    keys: Tensor,
    values: Tensor,
    past: Tensor,
    cosines: Tensor,
    sines: Tensor,
    out: Tensor,
    parts: Parts,
    *,
    span: int,
    epsilon: float,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
) -> None:
    """Put row b's new key and value into slot b at `past[b]`, and attend to all that the slot then holds.

    `packed` `[B, (heads + 2 * key heads) * head]` are query, key and value heads; `keys` and `values` `[slots, key
    heads, capacity, head]`; `past` int64 `[B]`, none of whose values reaches `span` but those of rows that pad the
    step, `capacity - 1`, which do nothing; `cosines` and `sines` float32 `[capacity, head / 2]`; norms float32
    `[head]`. `out` is `[B, heads * head]`.
    """
    rows = len(packed)
    _, key_heads, capacity, head = keys.shape
    group = out.shape[1] // head // key_heads
    queries, most_parts, width = parts.sums.shape[3], parts.sums.shape[2], parts.sums.shape[4]
    launch(
        _attend,
        (triton.cdiv(span, _PART), key_heads, rows),
        packed,
        keys,
        values,
        past,
        cosines,
        sines,
        packed if query_norm is None else query_norm,
        packed if key_norm is None else key_norm,
        out,
        parts.sums,
        parts.peaks,
        parts.masses,
        parts.arrivals,
        capacity,
        head**-0.5,
        epsilon,
        most_parts,
        KEY_HEADS=key_heads,
        GROUP=group,
        HEAD=head,
        QUERIES=queries,
        HALF=max(triton.next_power_of_2(head // 2), _FEWEST),
        WIDTH=width,
        PART=_PART,
        PLACES=_PLACES,
        NORMED=query_norm is not None,
        num_warps=4,
        num_stages=3,
    )
