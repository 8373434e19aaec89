"""Call a function at given times, to within tens of microseconds: event loops round their timers to whole
milliseconds."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

_MONOTONIC: Final = 1
_ABSOLUTE: Final = 1
_NS: Final = 1_000_000_000
_EXPIRATIONS_BYTES: Final = 8


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Pacer:
    """Calls `call(index)` at each of `times` (seconds of `time.monotonic()`, ascending)."""

    def __init__(self, times: Sequence[float], call: Callable[[int], None]) -> None:
        self._times = times
        self._call = call
        self._next = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        asyncio.get_running_loop().add_reader(self._fd, self._fired)
        self._arm()

    @property
    def finished(self) -> bool:
        return self._next == len(self._times)

    def skip_rest(self) -> None:
        self._next = len(self._times)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        try:
            os.read(self._fd, _EXPIRATIONS_BYTES)
        except BlockingIOError:
            return
        now = time.monotonic()
        while self._next < len(self._times) and self._times[self._next] <= now:
            self._next += 1
            self._call(self._next - 1)
        self._arm()

    def _arm(self) -> None:
        if self.finished:
            return
        # At least one nanosecond: zero would disarm the timer.
        due_ns = max(1, int(self._times[self._next] * _NS) + 1)
        timer = _Timer(value=_Timespec(due_ns // _NS, due_ns % _NS))
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(timer), None)
