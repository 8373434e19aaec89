"""`python -m tests.bench.gateway.unresumable`: a gateway whose clients cannot resume.

Only for measuring what resume costs (`tests.bench.gateway.price`): no cursor is packed, signed and sent, and no
checksum is taken of what was told. Deltas are numbered and merged as ever."""

import sys
from collections.abc import Collection

from gateway.request.cursor import Seal, Told


def forget_cursors() -> None:
    """Of every connection of this process from now on."""

    def write_nothing(self: Seal, told: Collection[Told]) -> str:
        del self, told
        return ""

    def number_alone(self: Told, text: str) -> None:
        del text
        self.seq += 1

    Seal.write = write_nothing  # type: ignore[method-assign]
    Told.tell = number_alone  # type: ignore[method-assign]


if __name__ == "__main__":
    from gateway.__main__ import main

    forget_cursors()
    sys.exit(main())
