"""Compute how much work a machine can place in windows of time if work may be interrupted. The order is given, and each
job gets as much as fits. Pure."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEAST_BIN_MS: Final = 50.0
_MOST_BINS: Final = 1_200
_LEAST_BINS: Final = 200
_CELLS: Final = 1.5e9  # of the slack, looked at in all: some seconds
_NOTHING_MS: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Each job's window as bin edges, `release < due`, rounded outwards so that windows only grow.

    `extra_ms` is how much of an interval's work may be finished after its end.
    """

    release: Ints
    due: Ints
    bin_ms: float
    extra_ms: float

    @classmethod
    def of(cls, release_ms: Floats, due_ms: Floats, *, extra_ms: float = 0.0) -> "Windows":
        start, end = (float(release_ms.min()), float(due_ms.max())) if release_ms.size else (0.0, 1.0)
        # A rectangle of the slack is a sixth of it on average.
        bins = min(_MOST_BINS, max(_LEAST_BINS, math.sqrt(6 * _CELLS / max(1, release_ms.size) / 2)))
        bin_ms = max(_LEAST_BIN_MS, (end - start) / bins)
        release = np.floor((release_ms - start) / bin_ms).astype(np.int64)
        due = np.ceil((due_ms - start) / bin_ms).astype(np.int64)
        return cls(release=release, due=np.maximum(due, release + 1), bin_ms=bin_ms, extra_ms=extra_ms)


def fill(windows: Windows, work_ms: Floats, order: Ints) -> Floats:
    """Return the work placed for each job, if each job in `order` gets as much of its work as still fits.

    `slack[a, b]` is the work that interval `[a, b]` can still take. A job gets the least slack of all intervals around
    its window. Once an interval is full, so is every window in it: `full_until[a]` is the furthest end of a full
    interval that starts at or before `a`.
    """
    edges = int(windows.due.max()) + 1
    at = np.arange(edges)
    slack = (at[None, :] - at[:, None]) * windows.bin_ms + windows.extra_ms
    full_until = np.full(edges, -1)
    taken = np.zeros(work_ms.size)
    for job in order.tolist():
        release, due = int(windows.release[job]), int(windows.due[job])
        if due <= full_until[release]:
            continue
        around = slack[: release + 1, due:]
        room = float(around.min())
        if room > work_ms[job]:
            around -= work_ms[job]
            taken[job] = work_ms[job]
            continue
        taken[job] = room
        around -= room
        for start, end in np.argwhere(around <= _NOTHING_MS).tolist():
            full_until[start:] = np.maximum(full_until[start:], due + end)
    return taken
