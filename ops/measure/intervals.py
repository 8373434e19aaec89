"""Intervals of shares. Pure."""

import math
from typing import Final

_Z95: Final = 1.959964


def wilson(some: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, `some` of `n` (E. Wilson, "Probable Inference", 1927); 0 to 1 of none."""
    if n == 0:
        return 0.0, 1.0
    share, z2 = some / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
