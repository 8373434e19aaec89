"""The systemd unit of an edge agrees with the command that it runs."""

import shlex
from configparser import RawConfigParser
from pathlib import Path
from typing import Final

import typer
from typer.main import get_command

from ops.cli import app
from ops.operate.up import _MARGIN_S
from shared.process.lifetime import BAD_INPUT_STATUS
from shared.settings import Settings

ROOT: Final = Path(__file__).parents[4]
UNIT: Final = "ops/operate/replyline-edge.service"


def service() -> dict[str, str]:
    parser = RawConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / UNIT)
    return dict(parser["Service"])


def test_the_unit_gives_the_command_the_options_that_it_requires() -> None:
    program, command, *arguments = shlex.split(service()["ExecStart"])
    group = get_command(app)
    assert (Path(program).name, isinstance(group, typer.core.TyperGroup)) == ("replyline", True)
    edge = group.commands[command]  # type: ignore[attr-defined]
    for option in edge.params:
        option.callback = None  # the unit's files are not on this machine
    given = edge.make_context(command, arguments).params
    assert given["centre"] == "${CENTRE}"
    assert all(given[option.name] for option in edge.params if option.required)


def test_the_journal_is_in_the_folder_that_systemd_keeps() -> None:
    unit = service()
    kept = Path("/var/lib") / unit["StateDirectory"]
    arguments = shlex.split(unit["ExecStart"])
    assert Path(arguments[arguments.index("--state") + 1]).is_relative_to(kept)
    assert unit["WorkingDirectory"] == str(kept), "relative paths of the settings begin there"


def test_a_stop_lets_gateway_and_worker_drain_and_bad_input_is_not_tried_again() -> None:
    unit, settings = service(), Settings()
    beyond_s = settings.kafka.request_timeout_ms / 1_000 + _MARGIN_S
    parts_s = [part.drain_s + beyond_s for part in (settings.gateway, settings.worker)]
    assert float(unit["TimeoutStopSec"]) >= sum(parts_s)
    assert unit["KillMode"] == "mixed", "else the worker and Redis get SIGTERM with the gateway"
    assert unit["RestartPreventExitStatus"] == str(BAD_INPUT_STATUS)


def test_the_page_of_edges_names_the_unit() -> None:
    assert f"../{UNIT}" in (ROOT / "docs" / "edge.md").read_text()
