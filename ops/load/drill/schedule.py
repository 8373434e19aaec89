"""The schedule of a drill: which fleet, what is asked of it, and one fault after another. Pure."""

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
    """A process of this machine stands still, and goes on after `seconds`."""

    pid: Annotated[int, Meta(gt=1)]
    seconds: Positive
    name: str = ""
    at: datetime | None = None


class Kill(Struct, frozen=True, kw_only=True, tag_field="fault", tag="kill", forbid_unknown_fields=True):
    """A process of this machine is killed; whoever looks after it starts it again."""

    pid: Annotated[int, Meta(gt=1)]
    seconds: Positive
    name: str = ""
    at: datetime | None = None


class Drain(Struct, frozen=True, kw_only=True, tag_field="fault", tag="drain", forbid_unknown_fields=True):
    """A worker leaves its group, by its port for operators."""

    worker: Annotated[str, Meta(min_length=1)]
    seconds: Positive
    name: str = ""
    at: datetime | None = None


class Command(Struct, frozen=True, kw_only=True, tag_field="fault", tag="command", forbid_unknown_fields=True):
    """A command of the operator's makes the fault, and another takes it away after `seconds`."""

    start: Annotated[tuple[str, ...], Meta(min_length=1)]
    seconds: Positive
    undo: tuple[str, ...] = ()
    name: str = ""
    at: datetime | None = None


Fault = Pause | Kill | Drain | Command


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fleet` is said again by `--consent`. `rate` questions a second are asked of `url`. Before a fault `calm_s` must
    pass in which the workers give at least `well` of the answers, in time; the drill ends at once where fewer than
    `least` of the last 20 questions had an answer in time, whoever gave it. Afterwards the fleet has `recover_s` to be
    well again."""

    fleet: Annotated[str, Meta(min_length=1)]
    url: Annotated[str, Meta(min_length=1)]
    drill: Annotated[tuple[Fault, ...], Meta(min_length=1)]
    rate: Annotated[float, Meta(gt=0, le=1_000)] = 2.0
    calm_s: Positive = 10.0
    recover_s: Positive = 60.0
    well: Share = 0.9
    least: Share = 0.8


def read_schedule(text: bytes, name: str) -> Schedule:
    """Return the schedule in a TOML file. Raises `SettingsError` that names the field and the remedy."""
    try:
        schedule = msgspec.toml.decode(text, type=Schedule)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name}: {error}; docs/reliability.md has an example") from None
    for number, fault in enumerate(schedule.drill, 1):
        if fault.seconds > _LONGEST_S:
            raise SettingsError(f"{name}: fault {number} lasts {fault.seconds:g} s; {_LONGEST_S:g} are allowed")
        if fault.at is not None and fault.at.tzinfo is None:
            raise SettingsError(f"{name}: fault {number} is at {fault.at.isoformat()}; name its offset, as in +00:00")
    return schedule


def said(fault: Fault) -> str:
    """Return a fault in words."""
    match fault:
        case Pause():
            what = f"process {fault.pid} stands still for {fault.seconds:g} s"
        case Kill():
            what = f"process {fault.pid} is killed, {fault.seconds:g} s"
        case Drain():
            what = f"worker {fault.worker} leaves, {fault.seconds:g} s"
        case Command():
            what = f"`{' '.join(fault.start)}`, {fault.seconds:g} s"
            what += f", then `{' '.join(fault.undo)}`" if fault.undo else ", nothing takes it back"
    return f"{fault.name}: {what}" if fault.name else what


def is_undone(fault: Fault) -> bool:
    """Return whether the drill takes a fault back by itself."""
    return isinstance(fault, Pause) or (isinstance(fault, Command) and bool(fault.undo))


def refusal(schedule: Schedule, consent: str | None, *, for_good: bool) -> str | None:
    """Return why the faults may not be made; None where the operator has agreed to all of them."""
    if consent is None:
        return f"nothing was done: --consent {schedule.fleet} makes these faults"
    if consent != schedule.fleet:
        return f"--consent {consent}: the schedule is for {schedule.fleet}"
    lasting = [fault for fault in schedule.drill if not is_undone(fault)]
    if lasting and not for_good:
        return f"{said(lasting[0])}: the drill cannot take that back; agree by --irreversible"
    return None


def wait_s(fault: Fault, now_unix_ms: float) -> float:
    """Return the time until a fault is due. Raises `SettingsError` where that was before now, or is over a day off."""
    if fault.at is None:
        return 0.0
    left_s = fault.at.timestamp() - now_unix_ms / _MS
    if not 0 <= left_s <= _LONGEST_WAIT_S or math.isnan(left_s):
        why = "has passed" if left_s < 0 else "is over a day off"
        raise SettingsError(f"{said(fault)}: {fault.at.isoformat()} {why}; name another time, or none")
    return left_s
