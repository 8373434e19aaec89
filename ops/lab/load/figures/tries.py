"""One try of a rate in the search for the knee, and the bounds that it has to keep. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ops.lab.load.figures.report import LoadReport
from ops.measure.quantiles import Quantiles
from ops.measure.runner import Cell, show


class Bounds(Struct, frozen=True, kw_only=True):
    """Bounds of the model's answers; None for no bound. `goodput` is the minimum share of all requests that the model
    answers in time."""

    ttft_p99_ms: float | None
    e2e_p99_ms: float | None
    goodput: float

    def broken_by(self, report: LoadReport) -> list[str]:
        """Return the bounds that a load has broken; empty if it has passed."""
        broken = [
            f"{name} p99 {show(of.p99)} ms"
            for name, of, most in (
                ("TTFT", report.ttft_ms, self.ttft_p99_ms),
                ("end to end", report.e2e_ms, self.e2e_p99_ms),
            )
            if most is not None and (of.p99 is None or of.p99 > most)
        ]
        if report.goodput.share < self.goodput:
            broken.append(f"in time {report.goodput.share:.1%}")
        return broken


class Try(Struct, frozen=True, kw_only=True):
    """One load at one rate. `broken` lists the bounds that it broke."""

    rate: float
    requests: int
    ttft_ms: Quantiles
    e2e_ms: Quantiles
    in_time: float
    errors: int
    broken: list[str]


def decided(passes: Sequence[bool], tries: int) -> bool | None:
    """Return the verdict of the majority of `tries` tries; None while it is open."""
    most = tries // 2 + 1
    if sum(passes) >= most:
        return True
    return False if len(passes) - sum(passes) > tries - most else None


TITLES: Final = (
    "requests/s", "requests", "TTFT p50/p99 ms", "end to end p50/p99 ms", "in time", "errors", ""
)  # fmt: skip


def rows_of(tried: Sequence[Try]) -> list[list[Cell]]:
    """Return one row per try, for the titles `TITLES`."""
    return [
        [
            one.rate,
            one.requests,
            f"{show(one.ttft_ms.p50)} / {show(one.ttft_ms.p99)}",
            f"{show(one.e2e_ms.p50)} / {show(one.e2e_ms.p99)}",
            f"{one.in_time:.1%}",
            one.errors,
            ", ".join(one.broken) or "within bounds",
        ]
        for one in tried
    ]
