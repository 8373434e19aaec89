"""Start and end a process: signals, uvloop, exit status."""

import asyncio
import gc
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from shared.errors import ModelError, ReplylineError, SettingsError
from shared.process.extras import missing_extra
from shared.process.tasks import abandon
from shared.telemetry.logs import get_logger, log_unhandled

BAD_INPUT_STATUS = 2
# Reference counting frees a request's objects; the collector only needs to find rare cycles.
_GC_THRESHOLDS = (50_000, 20, 50)
T = TypeVar("T")

log = get_logger()


def run_until_signal(serve: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run `serve(stop)` on uvloop and return the exit status.

    SIGINT and SIGTERM set `stop`. A second SIGINT ends the process immediately; a second SIGTERM has no effect, because
    GNU timeout and some supervisors send it to the process and to its group, and `serve` limits its own end. An invalid
    setting or model, or a missing extra, prints one line to stderr and gives status 2; another `ReplylineError` or an
    `OSError` gives one line and status 1.
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_unhandled)

        def ask_to_stop() -> None:
            stop.set()
            # the kernel handles the next ones: a second Ctrl-C even if the process hangs, SIGTERM to the very end
            for number, handler in ((signal.SIGINT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_IGN)):
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask_to_stop)
        await serve(stop)

    gc.set_threshold(*_GC_THRESHOLDS)  # by default the collector takes a tenth of a worker's start
    try:
        uvloop.run(main())
    except (SettingsError, ModelError) as error:
        return fail(str(error), BAD_INPUT_STATUS)
    except (ReplylineError, OSError) as error:
        return fail(str(error), 1)
    except Exception as error:
        lacking = missing_extra(error)
        if lacking is not None:
            return fail(lacking, BAD_INPUT_STATUS)
        log.exception("failed")  # an internal fault; Python's own traceback could quote a customer's text
        return 1
    return 0


class Stopped(Exception):  # noqa: N818 - no fault
    """The process should end before it has begun to serve."""


async def until_stopped(stop: asyncio.Event, work: Awaitable[T]) -> T:
    """Return the result of `work`; abandon it if `stop` is set.

    Raises:
        Stopped: `stop` was set.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            raise Stopped
        return working.result()
    finally:
        abandon(working)
        stopping.cancel()


def settle_heap() -> None:
    """Exclude the long-lived objects from the garbage collector, and make its full rounds rare.

    Full rounds stop the event loop for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def raise_file_limit(wanted: int) -> int:
    """Raise the limit for open files to `wanted`, or as far as allowed; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def fail(message: str, status: int) -> int:
    """Write the message to stderr, one line for each fault, and return the status."""
    for line in message.splitlines():
        sys.stderr.write(f"replyline: {line}\n")
    return status
