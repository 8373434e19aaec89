"""The command `replyline`."""

import os
import signal
import sys
from pathlib import Path
from typing import Final

SERVICES: Final = ("up", "gateway", "worker", "edge", "record", "autoscale run", "rollout run", "learn follow")
"""The commands that run until they are asked to end."""


def main() -> None:
    """Run the command line.

    SIGTERM and Ctrl-C end it even while modules are loading, a service with status 0: the first process of a container
    has no default action for SIGTERM, and a pod deleted early would continue to start.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: a socket would get its number, and the log
            nothing = Path(os.devnull).open("r+", encoding="utf-8")  # noqa: SIM115 - open to the end
            os.set_inheritable(nothing.fileno(), True)
            setattr(sys, name, nothing)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ended_by(signal.SIGTERM)))
    try:
        if sys.argv[1:] in (["gateway"], ["worker"]):
            sys.exit(_serve(sys.argv[1]))
        try:
            from ops.cli import main as run
        except ImportError as error:
            sys.exit(_without_terminal_tools(error))
        run()
    except KeyboardInterrupt:
        sys.exit(_ended_by(signal.SIGINT))


def _ended_by(number: signal.Signals) -> int:
    return 0 if f"{' '.join(sys.argv[1:])} ".startswith(tuple(f"{name} " for name in SERVICES)) else 128 + number


def _serve(service: str) -> int:
    """Run a gateway or a worker, without the modules of the other commands: they need an extra, and a third of a
    worker's start."""
    if service == "gateway":
        from gateway.__main__ import main as run_gateway

        return run_gateway()
    from workers.__main__ import main as run_worker

    return run_worker()


def _without_terminal_tools(error: ImportError) -> int:
    """Name the extra that a command needs."""
    from shared.process.extras import missing_extra
    from shared.process.lifetime import BAD_INPUT_STATUS, fail

    lacking = missing_extra(error)
    if lacking is None:
        raise error
    return fail(lacking, BAD_INPUT_STATUS)


if __name__ == "__main__":
    main()
