"""The command `replyline`, from its first moment."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.entry import SERVICES, main

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """Ctrl-C does nothing in what a shell without job control starts in the background."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("typed", "is_service"),
    [
        *((service, True) for service in SERVICES),
        ("gateway --help", True),
        *((typed, False) for typed in ("ask up", "upgrade", "autoscale plan", "topics create", "")),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_while_its_modules_load(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, typed: str, is_service: bool
) -> None:
    monkeypatch.setattr(sys, "argv", ["replyline", *typed.split()])
    for module in ("ops.cli", "gateway.__main__", "workers.__main__"):
        monkeypatch.setattr(f"{module}.main", lambda: signal.raise_signal(number))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == (0 if is_service else 128 + number)


@pytest.mark.parametrize("service", ["gateway", "worker"])
def test_a_service_starts_without_the_modules_of_other_commands(service: str) -> None:
    """They cost a worker 0.5 s of CPU, a fifth of its cold start."""
    room = {"gateway": "gateway", "worker": "workers"}[service]
    program = f"""
import sys, {room}.__main__
from ops.entry import main
sys.argv = ["replyline", {service!r}]
{room}.__main__.main = lambda: len({{"typer", "ops.cli"}} & {{*sys.modules}})
main()
"""
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_every_command_that_runs_until_a_signal_is_a_service() -> None:
    call = re.compile(r"[^\w]run_until_signal\(lambda")
    of_ops = sum(len(call.findall(file.read_text())) for file in (ROOT / "ops").rglob("*.py"))
    assert len(SERVICES) == of_ops + len(("gateway", "worker"))


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_stream_that_the_caller_closed_is_empty_for_the_command_and_its_children(closed: str) -> None:
    look = "import sys; sys.exit(not all((sys.stdin, sys.stdout, sys.stderr)))"
    program = f"""
import subprocess, sys, ops.cli
from ops.entry import main
ops.cli.main = lambda: sys.exit(subprocess.call([sys.executable, "-c", {look!r}]) or sys.stdout.isatty())
main()
"""
    number = ("stdin", "stdout", "stderr").index(closed)
    ran = subprocess.run([sys.executable, "-c", program], preexec_fn=lambda: os.close(number), check=False)
    assert ran.returncode == 0
