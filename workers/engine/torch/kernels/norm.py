"""RMS norm of rows, rounded to 8 bits where the next product reads them so.

Root mean square layer normalisation: arXiv 1910.07467.
"""

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from workers.engine.torch.kernels.launch import launch


@triton.jit
def to_levels(value, step, kind: tl.constexpr):
    """`value` in multiples of `step` as `kind` holds them: int8 to the nearest (ties to even), or E4M3; else itself."""
    if kind == tl.int8:
        level = tl.minimum(tl.maximum(value / step, -128.0), 127.0)
        # Adding and taking off 1.5 * 2**23 leaves a float32 without a fraction.
        return ((level + 12582912.0) - 12582912.0).to(kind)
    if kind == tl.float8e4nv:
        return tl.minimum(tl.maximum(value / step, -448.0), 448.0).to(kind)
    return value.to(kind)


@triton.jit
def _norm(hidden, scale, out, step, width, epsilon, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < width
    by = tl.load(scale + at, mask=inside, other=0.0)
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    value = tl.load(hidden + row * width + at, mask=inside, other=0.0)
    mean = tl.sum(value * value, axis=0) / width
    value = value * tl.rsqrt(mean + epsilon) * by
    tl.store(out + row * width + at, to_levels(value, step, out.dtype.element_ty), mask=inside)


def norm(hidden: Tensor, scale: Tensor, out: Tensor, *, epsilon: float, step: float | None = None) -> None:
    """Norm `hidden` float32 `[B, n]` by `scale` float32 `[n]` into `out` `[B, n]`.

    `out` of int8 or E4M3 holds multiples of `step`.
    """
    rows, width = hidden.shape
    block = triton.next_power_of_2(width)
    launch(
        _norm,
        (rows,),
        hidden,
        scale,
        out,
        1.0 if step is None else step,
        width,
        epsilon,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )
