"""The command `replyline`."""

import signal
import sys

_TERMINATED_STATUS = 128 + signal.SIGTERM


def main() -> None:
    """Run the command line. SIGTERM ends it while its modules load: as the first process of a container it would have
    no default action, and a pod that is deleted early would go on starting."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED_STATUS))
    from ops.cli import main as run

    run()


if __name__ == "__main__":
    main()
