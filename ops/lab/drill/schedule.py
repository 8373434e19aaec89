"""The schedule of a drill: the fleet, the load, and one fault after another. Pure."""

import math
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from shared.errors import SettingsError

Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Phase = Literal["before", "during", "after"]

_LONGEST_S: Final = 600.0
_LONGEST_WAIT_S: Final = 86_400.0
_MS: Final = 1_000.0


class Pause(Struct, frozen=True, kw_only=True, tag_field="fault", tag="pause", forbid_unknown_fields=True):
    """Stop a process of this machine, and continue it after `seconds`."""

    pid: Annotated[int, Meta(gt=1)]
    seconds: Positive
    name: str = ""
    at: datetime | None = None


class Kill(Struct, frozen=True, kw_only=True, tag_field="fault", tag="kill", forbid_unknown_fields=True):
    """Kill a process of this machine; its supervisor must restart it."""

    pid: Annotated[int, Meta(gt=1)]
    seconds: Positive
    name: str = ""
    at: datetime | None = None


class Drain(Struct, frozen=True, kw_only=True, tag_field="fault", tag="drain", forbid_unknown_fields=True):
    """Make a worker leave its group, through its port for operators."""

    worker: Annotated[str, Meta(min_length=1)]
    seconds: Positive
    name: str = ""
    at: datetime | None = None


class Command(Struct, frozen=True, kw_only=True, tag_field="fault", tag="command", forbid_unknown_fields=True):
    """Run a command of the operator's that causes the fault, and another one that undoes it after `seconds`."""

    start: Annotated[tuple[str, ...], Meta(min_length=1)]
    seconds: Positive
    undo: tuple[str, ...] = ()
    name: str = ""
    at: datetime | None = None


Fault = Pause | Kill | Drain | Command


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The schedule of a drill.

    Attributes:
        fleet: name of the fleet, to be repeated with `--consent`
        url: the gateway that is asked
        rate: questions per second
        calm_s: before each fault, the workers must answer well for this long
        recover_s: how long the fleet may take to recover after a fault
        well: minimum share of the workers' answers in time
        least: the drill stops if fewer of the last 20 questions had an answer in time, from any source
    """

    fleet: Annotated[str, Meta(min_length=1)]
    url: Annotated[str, Meta(min_length=1)]
    drill: Annotated[tuple[Fault, ...], Meta(min_length=1)]
    rate: Annotated[float, Meta(gt=0, le=1_000)] = 2.0
    calm_s: Positive = 10.0
    recover_s: Positive = 60.0
    well: Share = 0.9
    least: Share = 0.8


def read_schedule(text: bytes, name: str) -> Schedule:
    """Return the schedule in a TOML file. Raises `SettingsError` with the field and the remedy."""
    try:
        schedule = msgspec.toml.decode(text, type=Schedule)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name}: {error}; docs/reliability.md has an example") from None
    for number, fault in enumerate(schedule.drill, 1):
        if fault.seconds > _LONGEST_S:
            raise SettingsError(f"{name}: fault {number} lasts {fault.seconds:g} s; at most {_LONGEST_S:g} are allowed")
        if fault.at is not None and fault.at.tzinfo is None:
            raise SettingsError(f"{name}: fault {number} is at {fault.at.isoformat()}; add its offset, such as +00:00")
    return schedule


def said(fault: Fault) -> str:
    """Return a fault in words."""
    match fault:
        case Pause():
            what = f"process {fault.pid} is stopped for {fault.seconds:g} s"
        case Kill():
            what = f"process {fault.pid} is killed, {fault.seconds:g} s"
        case Drain():
            what = f"worker {fault.worker} leaves, {fault.seconds:g} s"
        case Command():
            what = f"`{' '.join(fault.start)}`, {fault.seconds:g} s"
            what += f", then `{' '.join(fault.undo)}`" if fault.undo else ", which is not undone"
    return f"{fault.name}: {what}" if fault.name else what


def is_undone(fault: Fault) -> bool:
    """Return whether the drill undoes a fault."""
    return isinstance(fault, Pause) or (isinstance(fault, Command) and bool(fault.undo))


def refusal(schedule: Schedule, consent: str | None, *, for_good: bool) -> str | None:
    """Return why the faults may not be caused; None if the operator has agreed to all of them."""
    if consent is None:
        return f"no fault was caused: --consent {schedule.fleet} causes them"
    if consent != schedule.fleet:
        return f"--consent {consent}: the schedule is for {schedule.fleet}"
    lasting = [fault for fault in schedule.drill if not is_undone(fault)]
    if lasting and not for_good:
        return f"{said(lasting[0])}: the drill cannot undo that; agree with --irreversible"
    return None


def wait_s(fault: Fault, now_unix_ms: float) -> float:
    """Return the time until a fault is due. Raises `SettingsError` if it is in the past, or more than a day ahead."""
    if fault.at is None:
        return 0.0
    left_s = fault.at.timestamp() - now_unix_ms / _MS
    if not 0 <= left_s <= _LONGEST_WAIT_S or math.isnan(left_s):
        why = "has passed" if left_s < 0 else "is more than a day ahead"
        raise SettingsError(f"{said(fault)}: {fault.at.isoformat()} {why}; use another time, or none")
    return left_s
