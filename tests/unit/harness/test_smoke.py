"""What does not serve is named, in either form of Compose's list."""

import json
from typing import Any

import pytest

from tests.smoke import listed, not_well


def line(name: str, state: str = "running", health: str = "", exit_code: int = 0) -> dict[str, Any]:
    return {"Name": name, "Service": name.rsplit("-", 1)[0], "State": state, "Health": health, "ExitCode": exit_code}


GOOD = [line("worker-1", health="healthy"), line("topics-1", "exited"), line("redis-1")]


@pytest.mark.parametrize("text", [json.dumps(GOOD), "\n".join(json.dumps(one) for one in GOOD)])
def test_what_serves_or_has_ended_well_is_well(text: str) -> None:
    assert not_well(listed(text), {"worker": 1, "topics": 1}) == ""
    assert not_well(listed(text), {"worker": 3, "proxy": 1}) == (
        "1 of 3 containers of worker, 0 of 1 containers of proxy"
    )


@pytest.mark.parametrize(
    ("state", "health", "exit_code", "told"),
    [
        ("running", "starting", 0, "starting"),
        ("running", "unhealthy", 0, "unhealthy"),
        ("restarting", "", 0, "restarting"),
        ("exited", "", 137, "exited"),
    ],
)
def test_what_does_not_serve_is_named(state: str, health: str, exit_code: int, told: str) -> None:
    assert not_well([line("worker-1", state, health, exit_code)], {"worker": 1}) == f"worker-1 is {told}"
