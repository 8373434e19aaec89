"""How many examples Hypothesis draws: a part in the ordinary suite, all in `make test-long`."""

import os
from typing import Final

LONG: Final = "LONG_TESTS" in os.environ
_PART: Final = 5
_FEWEST: Final = 20


def examples(count: int) -> int:
    """Return `count` in the long suite, and a fifth of it, at least 20, in the ordinary one."""
    return count if LONG else min(count, max(count // _PART, _FEWEST))
