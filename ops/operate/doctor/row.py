"""One row of the doctor's table."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"  # not required for this purpose, but for something else
    MISSING = "missing"  # required for this purpose


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One row of the table. `remedy` is empty if and only if the status is ok."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def row(name: str, found: bool, detail: str, remedy: str, *, otherwise: Status = Status.MISSING) -> CheckRow:
    return CheckRow(name, Status.OK, detail) if found else CheckRow(name, otherwise, detail, remedy)
