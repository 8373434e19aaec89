"""Child processes that never outlive their parent. Embedded services and the test broker are started and stopped with
it."""

import atexit
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from shared.errors import ReplylineError

# Runs in a new interpreter between fork and exec, so that no Python code runs in a forked copy of a threaded process.
# PR_SET_PDEATHSIG = 1. If the parent has ended already, the program is not started.
_LAUNCHER: Final = """
import os, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServiceError(ReplylineError):
    """A required service is not available. The message ends with the command that helps."""

    code = "service_unavailable"


_PORTS: Final = range(20_000, 32_000)
_PORT_TRIES: Final = 100
# separate, because programs that seed `random` identically would get the same ports
_CHANCE: Final = random.SystemRandom()
_HELD_AT_ONCE: Final = 32
_given: Final = set[int]()
_held: Final = deque[socket.socket]()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port on which no program listens at the moment, a different one each time.

    Another program may use it before the caller does, so callers should try again if they can. Outgoing connections do
    not use it, because it is below the ports that systems assign to them. On Linux, no other process that calls this
    function gets it while it is one of the most recent ports.
    """
    for port in _CHANCE.sample(_PORTS, _PORT_TRIES):
        if port in _given:
            continue
        holder = socket.socket()
        try:
            holder.bind((host, port))
        except OSError:
            holder.close()
            continue
        _given.add(port)
        _hold(holder)
        return port
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def _hold(holder: socket.socket) -> None:
    """Keep a bound port reserved for a while. Servers can still bind it, because they set SO_REUSEADDR. On other
    systems than Linux this would keep servers out, so there the port is released."""
    if sys.platform != "linux":
        holder.close()
        return
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(holder)
    if len(_held) > _HELD_AT_ONCE:
        _held.popleft().close()


@atexit.register
def _let_go() -> None:
    while _held:
        _held.popleft().close()


@dataclass(slots=True)
class Child:
    """A process in its own session, so that a terminal's Ctrl-C reaches only the parent, which stops its children in
    order.

    The kernel kills the child when the parent is killed. That is tied to the thread that starts the child, so it is
    only guaranteed for a start from the main thread; a child started from another thread is not tied, because it would
    die with that thread.
    """

    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls,
        argv: Sequence[str | Path],
        *,
        log: Path | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        share_output: bool = False,
    ) -> Self:
        """Start a process.

        Args:
            argv: the command; `argv[0]` is an absolute path
            log: file for stdout and stderr; otherwise they are discarded
            stdin: written to stdin, which is then closed
            env: added to the parent's environment
            share_output: use the parent's stdout and stderr
        """
        command = [str(part) for part in argv]
        if threading.current_thread() is threading.main_thread():
            command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]
        with ExitStack() as files:
            output: IO[bytes] | int | None = subprocess.DEVNULL
            if share_output:
                output = None
            elif log is not None:
                output = files.enter_context(log.open("ab"))
            process = subprocess.Popen(
                command,
                env=None if env is None else {**os.environ, **env},
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=output,
                stderr=None if share_output else subprocess.STDOUT,
                start_new_session=True,
            )
        if process.stdin is not None:
            try:
                process.stdin.write(stdin or b"")
                process.stdin.close()
            except BrokenPipeError:
                pass  # it has ended already; the code that waits for it reports why
        return cls(process)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def ending(self) -> str:
        """Return how the process ended: `ended with status 1`, `was ended by signal 11 (Segmentation fault)`."""
        status = self.process.wait()
        if status < 0:
            return f"was ended by signal {-status} ({signal.strsignal(-status)})"
        return f"ended with status {status}"

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.02) -> bool:
        """Return True once `ready()` returns True; False if the process ends or the time is up first."""
        until = time.monotonic() + timeout_s
        while self.running and time.monotonic() < until:
            if ready():
                return True
            time.sleep(poll_s)
        return False

    def signal(self, number: int) -> None:
        """Send a signal to the process itself (SIGSTOP and SIGCONT make outages in tests). Does nothing if it has
        ended."""
        if self.running:
            self.process.send_signal(number)

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Send SIGTERM, then SIGKILL; return when the process has ended. May be called again."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL, as in a crash; return when the process has ended."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running_on(some: Sequence[int] | None) -> Iterator[None]:
    """Run processes started in the block on these cores from their first thread; this process uses them too during the
    block."""
    before = os.sched_getaffinity(0)
    if some is not None:
        os.sched_setaffinity(0, some)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
