"""The command `replyline`."""

import signal
import sys

_TERMINATED_STATUS = 128 + signal.SIGTERM


def main() -> None:
    """Run the command line. SIGTERM ends it even while modules are loading: the first process of a container has no
    default action for SIGTERM, and a pod deleted early would continue to start."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED_STATUS))
    from ops.cli import main as run

    run()


if __name__ == "__main__":
    main()
