"""Products of rows with a large matrix, and what follows each: scale, bias, gate, residual, rounding.

The matrix is the left operand (`[outputs, inputs]` times `[inputs, rows]`): up to 128 rows cost one reading of it, and
the order of every sum is the same for each number of rows. Where its outputs are too few to keep the GPU's memory busy
the inputs are split as well: each part's sums go to a workspace, and the program that comes last adds them up, in the
order of the parts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product as product_of
from typing import Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from workers.engine.torch.decoder.weights import AnyLinear, RoundedLinear
from workers.engine.torch.kernels.launch import launch
from workers.engine.torch.kernels.norm import to_levels

_FEWEST_ROWS: Final = 16  # of the tensor cores' tiles
_MOST_ROWS: Final = 128


class Shape(NamedTuple):
    """Of a product, whatever its rows: `itemsize` is that of the matrix's numbers, of which a gated one has twice
    `outputs` rows."""

    outputs: int
    inputs: int
    itemsize: int
    gated: bool = False

    @classmethod
    def of(cls, linear: AnyLinear, *, gated: bool = False) -> "Shape":
        outputs, inputs = linear.matrix.shape
        return cls(outputs // 2 if gated else outputs, inputs, linear.matrix.element_size(), gated)


class Tile(NamedTuple):
    """What a program computes at once; `splits` programs share the inputs of the same outputs."""

    outputs: int
    inputs: int
    splits: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """`sums` float32: those of the parts of split products. `arrivals` int32 counts parts and is 0 between kernels."""

    sums: Tensor
    arrivals: Tensor

    @classmethod
    def of(cls, shapes: Iterable["Shape"], *, rows: int, device: torch.device) -> "Workspace":
        """For products of these shapes, one at a time, of up to `rows` rows."""
        most_sums = most_programs = 1
        for shape, block in product_of(list(shapes), _row_blocks(rows)):
            tile = tile_for(block, shape)
            programs = triton.cdiv(rows, block) * triton.cdiv(shape.outputs, tile.outputs)
            if tile.splits > 1:
                most_programs = max(most_programs, programs)
                most_sums = max(most_sums, programs * tile.splits * (1 + shape.gated) * tile.outputs * block)
        return cls(
            torch.empty(most_sums, dtype=torch.float32, device=device),
            torch.zeros(most_programs, dtype=torch.int32, device=device),
        )


@triton.jit
def _weigh(matrix, n, k, stride, kind: tl.constexpr):
    """A tile of the matrix, in the type of what it is multiplied by."""
    tile = tl.load(matrix + n[:, None] * stride + k[None, :], eviction_policy="evict_first")
    return tile if tile.dtype == kind else tile.to(kind)


@triton.jit
def _finish(
    total,
    above,
    scales,
    bias,
    place,
    inside,
    n,
    outputs,
    x_step,
    out_step,
    GATED: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    ADDED: tl.constexpr,
):
    value = total
    if SCALED:
        value *= (tl.load(scales + n) * x_step)[:, None]
    if BIASED:
        value += tl.load(bias + n).to(tl.float32)[:, None]
    if GATED:
        if SCALED:
            above *= (tl.load(scales + outputs + n) * x_step)[:, None]
        if BIASED:
            above += tl.load(bias + outputs + n).to(tl.float32)[:, None]
        value = value / (1.0 + tl.exp(-value)) * above
    if ADDED:
        value += tl.load(place, mask=inside, other=0.0)
    tl.store(place, to_levels(value, out_step, place.dtype.element_ty), mask=inside)


@triton.jit
def _product(
    x,
    matrix,
    scales,
    bias,
    out,
    sums,
    arrivals,
    rows,
    outputs,
    inputs,
    x_step,
    out_step,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    GATED: tl.constexpr,
    SCALED: tl.constexpr,
    BIASED: tl.constexpr,
    ADDED: tl.constexpr,
    PDL: tl.constexpr,
):
    kind: tl.constexpr = x.dtype.element_ty
    sum_kind: tl.constexpr = tl.int32 if kind == tl.int8 else tl.float32
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    there = m < rows
    known = tl.where(n < outputs, n, 0).to(tl.int64)
    share = tl.cdiv(inputs, INPUTS * SPLITS) * INPUTS
    first = tl.program_id(2) * share
    total = tl.zeros((OUTPUTS, ROWS), dtype=sum_kind)
    above = tl.zeros((OUTPUTS, ROWS), dtype=sum_kind)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    for start in range(first, min(first + share, inputs), INPUTS):
        k = start + tl.arange(0, INPUTS)
        given = tl.load(x + m.to(tl.int64)[None, :] * inputs + k[:, None], mask=there[None, :], other=0.0)
        total = tl.dot(_weigh(matrix, known, k, inputs, kind), given, total, input_precision="ieee")
        if GATED:
            above = tl.dot(_weigh(matrix, known + outputs, k, inputs, kind), given, above, input_precision="ieee")
    value, up = total.to(tl.float32), above.to(tl.float32)
    place = out + m.to(tl.int64)[None, :] * outputs + n[:, None]
    inside = (n < outputs)[:, None] & there[None, :]
    if SPLITS == 1:
        _finish(value, up, scales, bias, place, inside, known, outputs, x_step, out_step, GATED, SCALED, BIASED, ADDED)
        return
    block = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    kept = sums + (block * SPLITS * (1 + GATED)).to(tl.int64) * OUTPUTS * ROWS
    cell = tl.arange(0, OUTPUTS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
    mine = kept + tl.program_id(2) * OUTPUTS * ROWS * (1 + GATED)
    tl.store(mine + cell, value)
    if GATED:
        tl.store(mine + OUTPUTS * ROWS + cell, up)
    tl.debug_barrier()  # every thread's sums are written before one of them says so
    if tl.atomic_add(arrivals + block, 1, sem="acq_rel") == SPLITS - 1:
        tl.store(arrivals + block, 0)
        value = tl.zeros((OUTPUTS, ROWS), dtype=tl.float32)
        up = tl.zeros((OUTPUTS, ROWS), dtype=tl.float32)
        for part in range(SPLITS):
            theirs = kept + part * OUTPUTS * ROWS * (1 + GATED)
            value += tl.load(theirs + cell, cache_modifier=".cg")
            if GATED:
                up += tl.load(theirs + OUTPUTS * ROWS + cell, cache_modifier=".cg")
        _finish(value, up, scales, bias, place, inside, known, outputs, x_step, out_step, GATED, SCALED, BIASED, ADDED)


def product(
    x: Tensor,
    linear: AnyLinear,
    out: Tensor,
    workspace: Workspace,
    *,
    gated: bool = False,
    added: bool = False,
    out_step: float | None = None,
    tile: Tile | None = None,
) -> None:
    """Multiply `x` `[B, in]` by a matrix `[out, in]` into `out` `[B, out]`.

    `gated`: the matrix is gate above up, `[2 * out, in]`, and `out` is `silu(gate) * up`. `added`: `out`, float32, is
    added to. `out` of int8 or E4M3 holds multiples of `out_step`, and so does `x` of the linear's own step.
    """
    rows, inputs = x.shape
    outputs = out.shape[1]
    rounded = linear if isinstance(linear, RoundedLinear) else None
    rows_a_program = _row_block(rows)
    tile = tile or tile_for(rows_a_program, Shape.of(linear, gated=gated))
    launch(
        _product,
        (triton.cdiv(rows, rows_a_program), triton.cdiv(outputs, tile.outputs), tile.splits),
        x,
        linear.matrix,
        linear.matrix if rounded is None else rounded.scales,
        linear.matrix if linear.bias is None else linear.bias,
        out,
        workspace.sums,
        workspace.arrivals,
        rows,
        outputs,
        inputs,
        1.0 if rounded is None or rounded.step is None else rounded.step,
        1.0 if out_step is None else out_step,
        OUTPUTS=tile.outputs,
        INPUTS=tile.inputs,
        ROWS=rows_a_program,
        SPLITS=tile.splits,
        GATED=gated,
        SCALED=rounded is not None,
        BIASED=linear.bias is not None,
        ADDED=added,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def tile_for(rows: int, shape: Shape) -> Tile:
    """The tile for a product of this shape where a program has `rows`."""
    across = 256 // shape.itemsize if rows <= 32 else 64  # noqa: PLR2004
    while shape.inputs % across:
        across //= 2
    return Tile(16 if rows <= 16 else 32, across, 1, 4, 4)  # noqa: PLR2004


def _row_block(rows: int) -> int:
    return min(max(1 << (rows - 1).bit_length(), _FEWEST_ROWS), _MOST_ROWS)


def _row_blocks(rows: int) -> list[int]:
    """Those of any number of rows up to `rows`."""
    return sorted({_row_block(2**power) for power in range(rows.bit_length())} | {_row_block(rows)})
