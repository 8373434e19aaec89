"""Child processes that never outlive us: how the embedded services and the test broker are started and stopped."""

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from shared.errors import ReplylineError

# Runs in a fresh interpreter between fork and exec, so that no Python code runs in a forked copy of a threaded
# process. PR_SET_PDEATHSIG = 1. Where the parent is gone already, nothing is started.
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
    """A service that was asked for cannot be had; the message ends with the command that helps."""

    code = "service_unavailable"


_PORTS: Final = range(20_000, 32_000)
_PORT_TRIES: Final = 100
_CHANCE: Final = random.SystemRandom()  # of its own: programs that seed `random` alike would take the same ports
_HELD_AT_ONCE: Final = 32
_given: Final = set[int]()
_held: Final = deque[socket.socket]()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that nobody listens on at this moment, another one each time. Somebody else may take it:
    callers that can, try again. No outgoing connection does, as long as there is one below those that systems give to
    these; nor does another process that asks here, on Linux, for as long as one of the last ports is held."""
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
    """Keep a bound port for a while from all but those who may bind it anew, as servers do by SO_REUSEADDR. Elsewhere
    than on Linux that would keep servers out too."""
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
    """A process in a session of its own, so that a terminal's Ctrl-C reaches only us and we end it in our order.

    The kernel kills it when we are killed. That is bound to the thread that starts it, so only a start from the main
    thread has that guarantee: from any other the child would die with that thread, and the tie is left out.
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
        """`argv[0]` is an absolute path; `stdin` is written and closed; `env` is added to ours.

        stdout and stderr go to `log`, to our own with `share_output`, or nowhere.
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
                pass  # it has ended already: whoever waits for it to become ready sees that, and says why
        return cls(process)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def ending(self) -> str:
        """Return how it has ended: `ended with status 1`, `was ended by signal 11 (Segmentation fault)`."""
        status = self.process.wait()
        if status < 0:
            return f"was ended by signal {-status} ({signal.strsignal(-status)})"
        return f"ended with status {status}"

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.02) -> bool:
        """Return True once `ready()`, False when the process ends or the time is up first."""
        until = time.monotonic() + timeout_s
        while self.running and time.monotonic() < until:
            if ready():
                return True
            time.sleep(poll_s)
        return False

    def signal(self, number: int) -> None:
        """To the process itself (SIGSTOP and SIGCONT make outages in tests); nothing when it has ended."""
        if self.running:
            self.process.send_signal(number)

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """SIGTERM, then SIGKILL; returns when it is gone. May be called again."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process does not see SIGTERM
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, as a crash; returns when it is gone."""
        self.process.kill()
        self.process.wait()
