"""Cause one fault of a drill, and undo it in any case."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Final

from ops.lab.drill.schedule import Command, Drain, Fault, Kill, Pause, said
from ops.stack.own_pages import open_page
from shared.errors import SettingsError

_PATIENCE_S: Final = 30.0


def check(fault: Fault) -> None:
    """Raise `SettingsError` if a process does not exist or belongs to another user, before any question is asked."""
    if isinstance(fault, Pause | Kill):
        try:
            owner = Path(f"/proc/{fault.pid}").stat().st_uid
            os.kill(fault.pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            raise SettingsError(f"{said(fault)}: process {fault.pid} does not exist") from None
        except PermissionError:
            owner = None
        if owner != os.getuid():
            raise SettingsError(f"{said(fault)}: process {fault.pid} belongs to another user")


@asynccontextmanager
async def made(fault: Fault) -> AsyncIterator[None]:
    """Cause a fault, and undo it at the end of the block. Raises `SettingsError` if it cannot be caused."""
    match fault:
        case Pause():
            _signal(fault, signal.SIGSTOP)
            try:
                yield
            finally:
                _signal(fault, signal.SIGCONT)
        case Kill():
            _signal(fault, signal.SIGKILL)
            yield
        case Drain():
            await asyncio.to_thread(_drain, fault)
            yield
        case Command():
            await _run(fault, fault.start)
            try:
                yield
            finally:
                if fault.undo:
                    await _run(fault, fault.undo)


def _signal(fault: Pause | Kill, number: int) -> None:
    try:
        os.kill(fault.pid, number)
    except ProcessLookupError:
        raise SettingsError(f"{said(fault)}: process {fault.pid} has ended") from None


def _drain(fault: Drain) -> None:
    try:
        with open_page(f"http://{fault.worker}/drain", timeout_s=_PATIENCE_S) as page:
            page.read()
    except (OSError, HTTPException, ValueError) as error:
        raise SettingsError(f"{said(fault)}: {fault.worker} did not drain: {error}") from None


async def _run(fault: Command, command: tuple[str, ...]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise SettingsError(f"{said(fault)}: {command[0]}: {error.strerror}") from None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, told = await process.communicate()
    except TimeoutError:
        process.kill()
        raise SettingsError(f"{said(fault)}: {' '.join(command)} has not ended in {_PATIENCE_S:g} s") from None
    if process.returncode:
        last = (told.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise SettingsError(f"{said(fault)}: {' '.join(command)} failed: {last}")
