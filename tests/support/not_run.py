"""What this machine cannot run: named in the last lines of a run, and counted as no test that passed."""

import pytest

_LINES = pytest.StashKey[dict[str, None]]()


def name_not_run(config: pytest.Config, line: str) -> None:
    """Record a test that does not run, with what is missing on this machine; each line once."""
    config.stash.setdefault(_LINES, {})[line] = None


def named(config: pytest.Config) -> list[str]:
    return list(config.stash.get(_LINES, {}))
