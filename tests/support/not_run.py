"""What this machine cannot run: named in the last lines of a run, and counted as no test that passed."""

import pytest

_LINES = pytest.StashKey[dict[str, None]]()


def name_not_run(config: pytest.Config, line: str) -> None:
    """Name it once, with what is missing here."""
    config.stash.setdefault(_LINES, {})[line] = None


def named(config: pytest.Config) -> list[str]:
    return list(config.stash.get(_LINES, {}))
