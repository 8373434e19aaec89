"""Starts a kernel so that it is set up while the one before it still runs, where the GPU can.

Programmatic dependent launch, SM 90 and later: every kernel here waits by itself (`gdc_wait`) before it reads what the
one before it wrote.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#programmatic-dependent-launch-and-synchronization
"""

from typing import Any, Final

import torch

_OLDEST: Final = (9, 0)
# A product and a sum are one instruction, whatever a version of Triton does unasked.
_FUSED: Final = {"enable_fp_fusion": True}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Enqueue `kernel` on torch's current stream."""
    options |= _FUSED
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= _OLDEST:
        kernel[grid](*arguments, PDL=True, launch_pdl=True, **options)
    else:
        kernel[grid](*arguments, PDL=False, **options)
