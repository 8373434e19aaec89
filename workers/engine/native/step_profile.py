"""What a native engine's steps spend their time on, phase by phase, as its library counts it."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

PHASES: Final = ("embed", "norm", "qkv", "attention", "out", "gate_up", "down", "head")
"""`enum phase` of native.h, without what is between steps."""

Take = Callable[[int, int, Mapping[str, int]], None]
"""Told of each step: its rows, the longest context of one, and its phases' nanoseconds."""


class StepProfile:
    """The library adds each step's nanoseconds at `address`; `take` is told of them."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._ns = np.zeros(1 + len(PHASES), np.int64)

    @property
    def address(self) -> int:
        return self._ns.ctypes.data

    def end_step(self, rows: int, context: int) -> None:
        self._take(rows, context, dict(zip(PHASES, self._ns[1:].tolist(), strict=True)))
        self._ns[:] = 0
