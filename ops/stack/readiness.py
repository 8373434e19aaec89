"""Wait until a child process is ready, by its `/ready` page."""

import asyncio
import time
import urllib.error
from collections.abc import Mapping
from http.client import HTTPException
from typing import IO, Final

import msgspec

from ops.stack.own_pages import open_page
from ops.stack.processes import Child, ServiceError
from shared.telemetry.logs import get_logger

_START_S: Final = 60.0
_POLL_S: Final = 0.05
_LOADING: Final = "engine"  # what a worker's /ready misses until its model is loaded, or an upstream answers
_REPORT_AFTER_S: Final = 5.0


async def wait_ready(child: Child, url: str, name: str, *, reasons: str = "the lines above") -> None:
    """Wait until `/ready` reports nothing missing; a degraded process is waited for as well.

    Loading a model, or starting an upstream, has no time limit: building a TensorRT plan takes minutes. The reason for
    the wait is logged once.

    Args:
        child: the process
        url: its readiness page
        name: its name, for messages
        reasons: where its own messages are

    Raises:
        ServiceError: the child dies, or is not ready a minute after its model was loaded
    """
    begun_s = time.monotonic()
    until_s, told = begun_s + _START_S, False
    while (missing := await asyncio.to_thread(missing_at, url)) is None or missing:
        now_s = time.monotonic()
        if not child.running:
            raise ServiceError(f"{name} {child.ending}; see {reasons}")
        if missing is not None and _LOADING in missing:
            until_s = now_s + _START_S
            if not told and now_s > begun_s + _REPORT_AFTER_S:
                get_logger().warning("still_waiting", what=name, cause=missing[_LOADING])
                told = True
        if now_s > until_s:
            raise ServiceError(f"{name} is not ready after {_START_S:.0f} s; see {reasons}")
        await asyncio.sleep(_POLL_S)


class _Page(msgspec.Struct):
    missing: dict[str, str] = {}


def missing_at(url: str) -> Mapping[str, str] | None:
    """Return what `/ready` reports as missing, each with its reason; None without an answer."""
    try:
        with open_page(url, timeout_s=1) as page:
            return _named(page)
    except urllib.error.HTTPError as error:
        with error:
            return _named(error)
    except (OSError, HTTPException):
        return None


def _named(page: IO[bytes]) -> Mapping[str, str] | None:
    try:
        return msgspec.json.decode(page.read(), type=_Page).missing
    except (OSError, HTTPException, msgspec.DecodeError):
        return None
