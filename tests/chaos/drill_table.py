"""Which alert came how soon after its fault: what is printed, and what `--json` writes. Pure."""

from msgspec import Struct

from ops.measure.environment import Environment
from ops.measure.runner import markdown

WITHIN_S = 60.0


class DrillRow(Struct, frozen=True, kw_only=True):
    """`fired_s` from the fault to the alert that it is to fire, by Prometheus; None: not while it lasted. `others`
    began to fire before it, each after so many seconds."""

    fault: str
    alert: str
    fired_s: float | None
    others: dict[str, float]

    @property
    def holds(self) -> bool:
        return self.fired_s is not None and self.fired_s <= WITHIN_S


class DrillReport(Struct, frozen=True, kw_only=True):
    holds: bool
    faults: list[DrillRow]
    environment: Environment


def table(found: DrillReport) -> str:
    """For the terminal and for docs/reliability.md."""
    header = ("fault", "alert", f"fires after s (≤ {WITHIN_S:.0f})", "and before it")
    rows = [
        (
            row.fault,
            row.alert,
            row.fired_s,
            ", ".join(f"{name} {after_s:.0f} s" for name, after_s in row.others.items()) or "–",
        )
        for row in found.faults
    ]
    return markdown(header, rows)
